"""Ratios of alternating samples, and the table that shows them. Arithmetic only."""
import dataclasses
import statistics

@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """What is measured: prefill of one prompt of `context` tokens, or decode of `concurrency` sequences of that length."""
    kind: str  # "prefill" or "decode"
    context: int
    concurrency: int = 1

    @property
    def name(self):
        return f"prefill-{self.context}" if self.kind == "prefill" else f"decode-{self.context}-x{self.concurrency}"


@dataclasses.dataclass(frozen=True)
class Ratio:
    """masu's speed in units of a peer's: the median over pairs of samples taken one after the other, and the range."""
    median: float
    low: float
    high: float
    pairs: int

    def __str__(self):
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def ratio(masu, peer):
    """Of tokens per second; the i-th of each side belong together. What drifts over a run cancels within a pair."""
    if not masu or len(masu) != len(peer):
        raise ValueError(f"{len(masu)} samples of masu and {len(peer)} of the peer make no pairs")
    each = [ours / theirs for ours, theirs in zip(masu, peer)]
    return Ratio(statistics.median(each), min(each), max(each), len(each))


def ratio_of(record):
    return ratio(record["masu_rates"], record["peer_rates"])


def fastest(records):
    """{(weights, kv, cell): the record with the smallest ratio, that is the fastest peer's}, of those that were measured."""
    found = {}
    for record in records:
        if "skip" in record:
            continue
        key = record["weights"], record["kv"], record["cell"]
        if key not in found or ratio_of(record).median < ratio_of(found[key]).median:
            found[key] = record
    return found


def row(record, found):
    head = f"| {record['weights']} | {record['kv']} | {record['cell']} | {record['peer']} |"
    if "skip" in record:
        return f"{head} | | not run: {record['skip']} | | | |"
    pairs = ratio_of(record)
    shown = f"**{pairs}**" if found[record["weights"], record["kv"], record["cell"]] is record else f"{pairs}"
    return (f"{head} {statistics.median(record['masu_rates']):.1f} | {statistics.median(record['peer_rates']):.1f} | {shown} "
            f"| {pairs.pairs} | {record.get('fill', '')} | {record['busy']:.1f} |")


def table(records):
    """Markdown. Bold: the smallest ratio of a cell, that against the fastest peer."""
    records = sorted(records, key=lambda record: (-record["weights"], -record["kv"], record["order"], record["peer"]))
    found = fastest(records)
    lines = ["| weight bits | KV bits | cell | peer | masu tokens/s | peer tokens/s | masu / peer (range) | pairs | K and V | others' CPUs |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    return "\n".join(lines + [row(record, found) for record in records]) + "\n"


def page(name, records):
    """The table of a model with what it was measured with: of those that have the settings of the last record."""
    records = list(records)
    records = [record for record in records if record["settings"] == records[-1]["settings"]]
    lines = [f"## {name}", "", "- " + ", ".join(f"{key}: {value}" for key, value in records[-1]["settings"].items())]
    for record in records:
        for version, flags in zip(record.get("versions", []), record.get("flags", [])):
            line = f"- {version}: `{flags}`"
            if line not in lines:
                lines.append(line)
    return "\n".join([*lines, "", table(records)])
