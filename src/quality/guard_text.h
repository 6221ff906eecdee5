// The text that the KV guard reads. Written for it: prose, dialogue, numbers, a list, code and
// JSON, so that attention has names to find again and copies to make.
#pragma once

namespace masu {

inline constexpr const char* kGuardText =
    R"(The harbour office of Ostrava Bay opens at six. By half past, Mira Dolan has read the night
log twice, because the first reading is for the ships and the second is for the people. On the 14th
of March the log held three entries: the tug Henrietta, 212 tonnes, in at 02:40 with a broken winch;
the ferry Silver Line, 1,480 passengers, out at 05:15; and a sailing boat without a name, one person
on board, asking for fuel and for the way to the hospital.

"Who is he?" asked Tomas, who had come for the keys of the crane.
"She," said Mira. "Her name is Ines Caldera. She sailed from Porto Verde in nine days, and she wants
to sail back on Thursday."
"On Thursday there will be a storm."
"I told her so. She said that the storm would be behind her."

Tomas laughed, took the keys and counted them: one for the crane, two for the gate, one that nobody
had ever found a lock for. The winch of the Henrietta would cost 3,750 crowns and four days, he
thought, unless the part from the old Marianne fitted, and then it would cost 400 and an afternoon.

What the office keeps, in this order:
1. the log, by date;
2. the fuel book, by ship;
3. letters that nobody has called for, by the first letter of the name.

The log is also kept by a program, which Mira does not trust, although it has never been wrong:

def total_fuel(entries, ship):
    total = 0
    for entry in entries:
        if entry["ship"] == ship:
            total += entry["litres"]
    return total

{"ship": "Henrietta", "litres": 640, "date": "03-14", "paid": true}
{"ship": "Silver Line", "litres": 9200, "date": "03-14", "paid": true}
{"ship": "unnamed", "litres": 55, "date": "03-14", "paid": false}

In the evening Ines came back from the hospital and paid for 55 litres with a letter: it was
addressed to Mira Dolan, harbour office, Ostrava Bay, it was eleven years old, and it had been lying
in the office of Porto Verde under the letter D. "They asked me to bring it," said Ines, "since I was
going this way." Mira read it twice. The first reading was for the news, and the second was for the
person who had written it.)";

}  // namespace masu
