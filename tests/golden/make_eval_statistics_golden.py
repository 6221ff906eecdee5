"""Golden data for src/quality/eval_statistics: eval_statistics.txt.

usage: make_eval_statistics_golden.py > tests/golden/eval_statistics.txt

A second opinion, written from the definitions and not from the formulas that the code uses: the Wilson interval is where
|mean - p| = z * sqrt(p (1 - p) / n) by bisection; McNemar's p is summed over every outcome that is as unlikely, in
fractions; Student's quantile is found by bisection over the density's integral (Simpson's rule). Each line:
  wilson MEAN N LOW HIGH | mcnemar LOST GAINED P | paired N VALUES... MEAN LOW HIGH
"""
import math
import random
from fractions import Fraction

Z = 1.959963984540054  # the normal distribution's 97.5 % quantile


def bisect(function, low, high):
    """The root of a function that rises from low to high."""
    for _ in range(200):
        middle = (low + high) / 2
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def wilson(mean, n):
    def miss(p):
        return (mean - p) ** 2 - Z * Z * p * (1 - p) / n
    low = bisect(lambda p: -miss(p), 0.0, mean) if mean > 0 else 0.0
    high = bisect(miss, mean, 1.0) if mean < 1 else 1.0
    return low, high


def mcnemar(lost, gained):
    n = lost + gained
    chances = [Fraction(math.comb(n, k), 2 ** n) for k in range(n + 1)]
    return float(sum(chance for chance in chances if chance <= chances[lost]))


def student_quantile(degrees):
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)

    def density(t):
        return scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2)

    def probability(t, steps=4000):
        h = t / steps
        odd = sum(density((2 * i + 1) * h) for i in range(steps // 2))
        even = sum(density(2 * i * h) for i in range(1, steps // 2))
        return 0.5 + h / 3 * (density(0) + 4 * odd + 2 * even + density(t))
    low, high = 1.0, 20.0
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) < 0.975 else (low, middle)
    return (low + high) / 2


def paired(values):
    n = len(values)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = student_quantile(n - 1) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half


def line(kind, *fields):
    print(kind, *(f"{field:.12g}" for field in fields))


def main():
    for correct, n in ((0, 1), (1, 1), (0, 20), (20, 20), (10, 20), (1, 100), (57, 100), (1999, 2376), (0.5, 3), (7.25, 40)):
        line("wilson", correct / n, n, *wilson(correct / n, n))
    for lost, gained in ((0, 0), (1, 0), (0, 5), (3, 3), (2, 9), (9, 2), (10, 10), (40, 60), (300, 360), (700, 701)):
        line("mcnemar", lost, gained, mcnemar(lost, gained))
    rng = random.Random(5)
    for n in (2, 3, 4, 5, 10, 31, 200):
        values = [round(rng.gauss(-0.02, 0.3), 4) for _ in range(n)]
        line("paired", n, *values, *paired(values))


if __name__ == "__main__":
    main()
