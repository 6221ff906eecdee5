#include "quality/eval_text.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace masu {
namespace {

constexpr std::string_view kText = R"(The ferry left the harbour a little after six, when the fog
was still so thick that the gulls on the railing looked like bundles of grey cloth. Marta stood at
the stern with her collar turned up and counted the buoys as they slid past: one, two, three, and
then nothing but water and the low sound of the engine. She had made this crossing every spring for
eleven years, first with her father, then with her brother, and now alone. In her bag she carried
a thermos of tea, two rolls with cheese, and the letter that had started it all.

"You are early this year," said the man who sold tickets.

"The ice went early," she answered. "And somebody has to look after the roof before it rains."

He laughed and gave her the change: four coins, one of them foreign. "If you need nails, ask for
Henrik at the blue house. He keeps everything, and he forgets what he lends."

By noon the fog had lifted. The island lay in front of them, flat and brown, with a white church at
one end and a row of sheds at the other. Nobody waited on the pier except a dog, which barked once,
thought better of it, and lay down again in the sun.

Why does bread rise? Yeast is a fungus that feeds on sugar. When it has little oxygen it turns the
sugar into alcohol and carbon dioxide, and the gas collects in small bubbles. The dough holds them
because kneading has drawn the proteins of the flour, glutenin and gliadin, into long elastic
strands. In the oven the bubbles grow as they warm, the alcohol evaporates, and at about 70 degrees
Celsius the proteins and the starch set, so that the loaf keeps its shape. Salt slows the yeast
down and makes the strands firmer; too much sugar slows it down as well, since it draws water out of
the cells. This is why sweet doughs need more yeast or more time.

To replace the filter, follow these steps:
1. Switch the pump off and unplug it. Wait until the pressure gauge shows zero.
2. Turn the cover to the left and lift it out. Keep the rubber ring; it is used again.
3. Rinse the housing with clean water. Do not use soap.
4. Put the new filter in with the arrow pointing down, and close the cover by hand.
5. Plug the pump in, open the tap, and let the water run for two minutes.
If water drips from the cover, the ring is not in its groove: go back to step 2.

The table shows how many visitors the museum had. In 2019 there were 48,210; in 2020 only 17,935,
because it was closed from March to August; in 2021 the number rose to 29,400, and in 2022 to 51,062,
which is 5.9 % more than in 2019. A ticket costs 8.50 for adults and 4.00 for children under 14, and
every first Sunday of the month is free. The new wing, which opened on 3 May 2022, cost 6.4 million
and was paid for in three parts: 2.5 million by the city, 2.9 million by the state, and the rest by
donations.

def median(values):
    """The middle value, or the mean of the two in the middle."""
    if not values:
        raise ValueError("median of an empty list")
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2

for row in [[3, 1, 2], [4, 1, 3, 2], [7]]:
    print(row, "->", median(row))

{"order": 20417, "customer": {"name": "A. Okafor", "city": "Leeds"}, "items": [{"sku": "KT-100",
"title": "Kettle, 1.5 l", "count": 1, "price": 39.90}, {"sku": "MG-014", "title": "Mug, blue",
"count": 4, "price": 6.25}], "shipping": "standard", "paid": true, "note": null}

The total of this order is 39.90 + 4 * 6.25 = 64.90.

A court will set a contract aside if one side was misled about something that mattered, but not
merely because the bargain turned out badly. In the case before us the buyer was told that the
roof had been renewed in 2015. It had not; a few tiles had been replaced, and the beams beneath them
were rotten. The seller argued that the buyer could have climbed into the attic and looked. That
is no defence. Whoever makes a statement of fact so that another will rely on it cannot complain
that he did. The buyer may therefore return the house and have the price back, less a reasonable
sum for the months in which he lived there.

Patient is a woman of 54 with a cough of three weeks, worse at night, and no fever. She has never
smoked. Blood pressure 132/84, pulse 76, temperature 36.8, oxygen saturation 97 % on room air. The
lungs are clear on both sides. She began to take an ACE inhibitor for her blood pressure five weeks
ago. The cough is most likely caused by it; the drug is changed for another class, and she is asked
to come back in four weeks, sooner if she coughs up blood, loses weight or becomes short of breath.

User: My train arrives at 17:42 and the connection leaves at 17:55 from another platform. Is that
enough time?
Assistant: Thirteen minutes are enough in most stations, if the first train is on time. Two things
help: sit near the front of the train if the stairs are there, and look up the platform of the
connection before you arrive. If the first train is more than eight minutes late, take the next
connection at 18:25 instead of running.
User: And if I have a bicycle with me?
Assistant: Then plan for the next one. Lifts are slow, and many trains take bicycles only with a
reservation.

In the evening Marta climbed the ladder with a hammer in her belt. The roof was not as bad as she
had feared: eleven slates were loose, three were missing, and the gutter had come away at the north
corner. From up there she could see the ferry on its way back, small and white, and beyond it the
line of the mainland, where the lights were just being lit. She drove in the first nail, then the
second. The dog had followed her from the pier and slept at the foot of the ladder, as if it had
always lived there. When the last slate was fixed she sat on the ridge for a while with the letter
in her hand, and read it once more from the beginning to the end: "Dear Marta, the house is yours if
you want it, and if you do not, leave the door open for whoever comes next."
)";

}  // namespace

std::string_view BuiltinEvalText() { return kText; }

Result<std::string> ReadEvalText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return MakeError(ErrorCode::kNotFound,
                     "{}: cannot be read; give a text or .jsonl file with --text", path);
  if (!path.ends_with(".jsonl")) return std::string(std::istreambuf_iterator<char>(file), {});
  std::string text;
  uint64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const char* key = json.is_object() && json.contains("context") ? "context" : "text";
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
      return DataLoss("{} line {}: expected an object with a string \"context\" or \"text\"", path,
                      number);
    }
    text += (text.empty() ? "" : " ") + json[key].get<std::string>();
  }
  return text;
}

}  // namespace masu
