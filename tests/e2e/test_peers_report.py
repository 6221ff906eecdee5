"""The arithmetic of bench/peers: ratios of pairs and the table that shows them. No peer is needed."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import report  # noqa: E402


def record(peer, masu, rates, cell="decode-512-x8", order=3, **more):
    return {"peer": peer, "weights": 8, "kv": 16, "cell": cell, "order": order, "masu_rates": masu, "peer_rates": rates, "busy": 0.04,
            "settings": {"threads": 2}} | more


def test_a_ratio_is_taken_within_each_pair():
    # Both sides slow down from pair to pair; the medians' ratio would be 20 / 10 as well, but no pair but one has it.
    pairs = report.ratio([40, 20, 9], [10, 10, 9])
    assert (pairs.low, pairs.median, pairs.high, pairs.pairs) == (1, 2, 4, 3)
    assert str(pairs) == "2.00 (1.00-4.00)"


def test_a_drift_of_the_machine_cancels():
    drift = [1, 0.5, 0.25, 0.8, 1.3]
    pairs = report.ratio([30 * factor for factor in drift], [20 * factor for factor in drift])
    assert pairs.low == pytest.approx(1.5) and pairs.high == pytest.approx(1.5)


@pytest.mark.parametrize("masu,peer", [([], []), ([1], []), ([1, 2], [1])])
def test_samples_without_a_partner_are_refused(masu, peer):
    with pytest.raises(ValueError, match="make no pairs"):
        report.ratio(masu, peer)


def test_the_fastest_peer_is_the_one_with_the_smallest_ratio():
    slow, fast = record("slow", [30, 30], [10, 10]), record("fast", [28, 28], [20, 20])
    other = record("slow", [5, 5], [10, 10], cell="prefill-512", order=0)
    found = report.fastest([slow, fast, other, record("absent", [], [], skip="it does not load")])
    assert found[8, 16, "decode-512-x8"] is fast
    assert found[8, 16, "prefill-512"] is other


def test_the_table_has_a_line_for_each_cell_and_names_what_was_not_run():
    lines = report.table([
        record("slow", [30, 33, 36], [10, 11, 12], fill="own"),
        record("fast", [30, 33, 36], [20, 22, 24], fill="shared"),
        record("absent", [], [], cell="prefill-2048", order=1, skip="absent does not load q4_0"),
    ]).splitlines()
    columns = lines[0].count("|")
    assert len(lines) == 5 and all(line.count("|") == columns for line in lines)
    assert lines[2].startswith("| 8 | 16 | prefill-2048 | absent |") and "not run: absent does not load q4_0" in lines[2]
    assert lines[3] == "| 8 | 16 | decode-512-x8 | fast | 33.0 | 22.0 | **1.50 (1.50-1.50)** | 3 | shared | 0.0 |"
    assert lines[4] == "| 8 | 16 | decode-512-x8 | slow | 33.0 | 11.0 | 3.00 (3.00-3.00) | 3 | own | 0.0 |"


def test_a_page_leaves_out_what_was_measured_with_another_binary():
    old, new = record("slow", [30], [10]), record("fast", [30], [20], versions=["masu 1", "fast 2"], flags=["--a", "--b"])
    new["settings"] = {"threads": 4}
    text = report.page("1b", [old, new])
    assert "threads: 4" in text and "- fast 2: `--b`" in text and "| fast |" in text and "| slow |" not in text


def test_cells_are_named_by_what_they_measure():
    assert report.Cell("prefill", 2048).name == "prefill-2048"
    assert report.Cell("decode", 512, 32).name == "decode-512-x32"
