"""Measure how right the answers of federated analytics are, beside simpler ways to answer.

Each row: what is asked, what is demanded, what was seen, and the same figure of a baseline. Noise
is drawn by the samplers of a run, at honest_fraction = 0.8, for the data of 300 clients. Nothing is
masked: a masked sum is the same integers.

``python benchmarks/analytics_accuracy.py adult.csv tinyshakespeare.txt``, two minutes on one core.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.counts import counting_mechanism
from zerosum.client.queries.encode import encode
from zerosum.client.queries.moves import moves
from zerosum.client.queries.oracles import choose, probabilities
from zerosum.client.queries.query import Bayes, Histogram, Moments, Quantile, Query, Words
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table, read_table
from zerosum.client.request import MAX_RECORDS, QueryQuestion
from zerosum.client.spec.query_privacy import QueryPrivacy
from zerosum.secagg.randomness import Keystream, insecure_keystream, numpy_generator
from zerosum.server.analytics.answers import Answer, answer
from zerosum.server.analytics.bayes import classifier
from zerosum.server.analytics.calibrate import Noise, calibrate
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.oracle_estimates import oracle_counts
from zerosum.server.analytics.prefixes import payload_of, survivors

CLIENTS = 300
HONEST = 0.8
DELTA = 1e-6

CATEGORIES = (
    "type_employer", "education", "marital", "occupation", "relationship", "race", "sex",
    "country", "income",
)  # fmt: skip

RANGES: dict[str, dict[str, Any]] = {
    "age": {"integer": [17, 90]},
    "fnlwgt": {"integer": [0, 1_500_000]},
    "education_num": {"integer": [1, 16]},
    "capital_gain": {"integer": [0, 99_999], "bins": 10},
    "capital_loss": {"integer": [0, 4_500], "bins": 10},
    "hr_per_week": {"integer": [1, 99]},
}

FEATURES = tuple(name for name in (*CATEGORIES, *RANGES) if name not in ("income", "fnlwgt"))


@dataclass(frozen=True)
class Row:
    """One line of the table that is printed."""

    name: str
    demand: str
    seen: str
    baseline: str
    met: bool


class Released:
    """A query over one table, answered again and again under fresh noise."""

    def __init__(self, query: Query, table: Table, noise: Noise) -> None:
        self.table = table
        self.schema = table.schema.only(query.reads)
        privacy = QueryPrivacy(law=noise.law, scale=noise.scale, honest_fraction=HONEST)
        self.question = QueryQuestion(
            round=1, seed=0, population=CLIENTS, domains=self.schema, query=query, privacy=privacy
        )
        self.mechanism = counting_mechanism(noise.law, noise.scale, CLIENTS, HONEST, (1,))
        self.noise = ReleasedNoise(noise.law, noise.scale, 1 / HONEST)

    def exact(self, coins: Keystream, payload: bytes = b"") -> NDArray[np.int64]:
        """Return the integers of all clients: one table's are the sum of its parts'."""
        return encode(
            self.question.query,
            self.table.schema,
            self.table,
            unit="record",
            cap=None,
            max_records=MAX_RECORDS,
            payload=payload,
            secret=bytes(32),
            coins=coins,
        )

    def noisy(self, exact: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Return them with the noise of a released sum."""
        return exact + self.mechanism.noise(CLIENTS, exact.size, rng)

    def answers(self, count: int, seed: int) -> Iterator[Answer]:
        """Yield answers, each with rounding and noise of its own."""
        varies = isinstance(self.question.query, Moments)
        exact = self.exact(insecure_keystream(seed, "coins"))
        for number in range(count):
            if varies and number:
                exact = self.exact(insecure_keystream(seed, "coins", number))
            noisy = self.noisy(exact, insecure_keystream(seed, "noise", number))
            yield answer(self.question, noisy, self.noise, CLIENTS)


def noise_for(query: Query, schema: Schema, epsilon: float, law: Any = "auto") -> Noise:
    """Return the noise of a query at an epsilon, record by record."""
    steps = moves(query.blocks(schema), unit="record", adjacency="zero_out", cap=None)
    return calibrate(steps, epsilon=epsilon, delta=DELTA, mechanism=law)


def adult(path: str, **ranges: dict[str, Any]) -> Table:
    """Return the table, with its domains declared."""
    import pandas as pd

    values = pd.read_csv(path)
    listed = {name: sorted(values[name].unique()) for name in CATEGORIES}
    return read_table(path, Schema.of({**listed, **RANGES, **ranges}))


def histogram_rows(table: Table) -> Iterator[Row]:
    """Ages: the mean of the errors' sum over the number of records."""
    query = Histogram(columns=("age",))
    truth = np.bincount(table.columns["age"], minlength=74)

    def error(noise: Noise) -> float:
        answers = Released(query, table, noise).answers(100, 1)
        return float(np.mean([np.abs(a.values - truth).sum() for a in answers])) / len(table)

    seen = error(noise_for(query, table.schema, 1.0))
    trusted = counting_mechanism("geometric", 1.0, CLIENTS, 1.0, (1,), central=True)
    draws = [trusted.noise(1, 74, insecure_keystream(2, "noise", i)) for i in range(100)]
    central = float(np.abs(draws).sum(axis=1).mean()) / len(table)
    skellam = error(noise_for(query, table.schema, 1.0, "skellam"))
    yield Row(
        "histogram of age, eps 1: L1 / n",
        "<= .0026",
        f"{seen:.4f}",
        f"central {central:.4f}, Skellam {skellam:.4f}",
        seen <= 0.0026,
    )


def moment_rows(table: Table, repeats: int = 500) -> Iterator[Row]:
    """Means, sums and variances: error over claimed error, and coverage of 95 % intervals."""
    for column in ("age", "hr_per_week"):
        low, high = RANGES[column]["integer"]
        x = table.columns[column] + low
        shares = f"sum and count at eps/2 each {split(x - low, high - low):.4g}"
        mean, whole, variance = float(x.mean()), float(x.sum()), float(x.var())
        asked = Moments(kind="mean", column=column, weight=4096)
        yield moment_row(asked, table, mean, shares, repeats)
        asked = Moments(kind="sum", column=column, weight=4096)
        yield moment_row(asked, table, whole, "-", repeats)
        asked = Moments(kind="variance", column=column, weight=4096)
        yield moment_row(asked, table, variance, "-", repeats)


def moment_row(query: Moments, table: Table, truth: float, baseline: str, repeats: int) -> Row:
    """Return the row of one moment at epsilon 1."""
    noise = noise_for(query, table.schema, 1.0, "geometric")
    errors, claims, inside = [], [], 0
    for one in Released(query, table, noise).answers(repeats, 3):
        errors.append(float(one.values) - truth)
        claims.append(float(one.std))
        ends = one.interval(0.95)
        inside += bool(ends.low <= truth <= ends.high)
    rmse, claimed = float(np.sqrt(np.mean(np.square(errors)))), float(np.mean(claims))
    covered = inside / repeats
    return Row(
        f"{query.kind} of {query.column}, eps 1: rmse; coverage of {repeats}",
        "<= 1.1 x claimed; .93-.97",
        f"{rmse:.4g} of {claimed:.4g} claimed; {covered:.3f}",
        baseline,
        rmse <= 1.1 * claimed and 0.93 <= covered <= 0.97,
    )


def split(shifted: NDArray[np.int64], width: int, repeats: int = 500) -> float:
    """Return the rmse of a sum over a count, each at half of epsilon 1."""
    sums, counts = (
        counting_mechanism("geometric", 2.0 * move, CLIENTS, HONEST, (move,)) for move in (width, 1)
    )
    top = shifted.sum() + sums.noise(CLIENTS, repeats, insecure_keystream(4, "sum"))
    bottom = len(shifted) + counts.noise(CLIENTS, repeats, insecure_keystream(4, "count"))
    return float(np.sqrt(np.mean(np.square(top / bottom - shifted.mean()))))


QS = (0.1, 0.25, 0.5, 0.75, 0.9)


def quantile_rows(table: Table, repeats: int = 100) -> Iterator[Row]:
    """Quantiles of fnlwgt: the median error in rank, and coverage of 95 % intervals."""
    x = np.sort(table.columns["fnlwgt"])
    query = Quantile(column="fnlwgt", q=QS)
    truths = np.array([x[int(np.ceil(q * len(x))) - 1] for q in QS])
    for epsilon, most in ((0.1, 0.005), (1.0, 0.001)):
        errors: list[float] = []
        widths: list[NDArray[np.int64]] = []
        inside: list[bool] = []
        noise = noise_for(query, table.schema, epsilon)
        for one in Released(query, table, noise).answers(repeats, 5):
            errors.extend(rank_errors(x, one.values))
            ends = one.interval(0.95)
            inside.extend((ends.low <= truths) & (truths <= ends.high))
            widths.append(
                np.searchsorted(x, ends.high, side="right") - np.searchsorted(x, ends.low)
            )
        error, covered = float(np.median(errors)), float(np.mean(inside))
        yield Row(
            f"quantiles of fnlwgt, eps {epsilon:g}: median rank error; coverage",
            f"<= {100 * most:g} %; >= .93",
            f"{100 * error:.3f} %; {covered:.3f}, width {100 * np.median(widths) / len(x):.2f} %",
            f"flat bins {100 * flat_bins(x, epsilon):.3f} %, "
            f"central exponential mechanism {100 * exponential_mechanism(x, epsilon):.3f} %",
            error <= most and covered >= 0.93,
        )


def rank_errors(x: NDArray[np.int64], values: Sequence[float] | NDArray[Any]) -> NDArray[Any]:
    """Return how far each quantile is from the ranks of its value, as a part of the records."""
    below = np.searchsorted(x, values, side="left") / len(x)
    at = np.searchsorted(x, values, side="right") / len(x)
    return np.maximum(0.0, np.maximum(below - QS, np.subtract(QS, at)))


def flat_bins(x: NDArray[np.int64], epsilon: float, repeats: int = 100) -> float:
    """Return the median rank error of 4,096 bins without a tree, geometric noise."""
    size = RANGES["fnlwgt"]["integer"][1] + 1
    bins = np.bincount(x * 4096 // size, minlength=4096)
    mechanism = counting_mechanism("geometric", 1 / epsilon, CLIENTS, HONEST, (1,))
    errors: list[float] = []
    for number in range(repeats):
        noisy = bins + mechanism.noise(CLIENTS, 4096, insecure_keystream(6, "flat", number))
        below = np.cumsum(noisy)
        places = [int(np.argmax(below >= q * below[-1])) for q in QS]
        errors.extend(rank_errors(x, (np.array(places) + 0.5) * size / 4096))
    return float(np.median(errors))


def exponential_mechanism(x: NDArray[np.int64], epsilon: float, repeats: int = 100) -> float:
    """Return the median rank error of a trusted curator who spends all of epsilon on each q.

    McSherry and Talwar (2007) with the distance in rank as the score, of sensitivity 1.
    """
    rng = numpy_generator(7, "exponential mechanism")
    ends = np.concatenate(([0], x, [RANGES["fnlwgt"]["integer"][1]]))
    with np.errstate(divide="ignore"):
        lengths = np.log(np.diff(ends))
    errors: list[NDArray[Any]] = []
    for _ in range(repeats):
        values = []
        for q in QS:
            score = lengths - epsilon / 2 * np.abs(np.arange(len(ends) - 1) - q * len(x))
            place = int(np.argmax(score + rng.gumbel(size=score.size)))
            values.append(rng.uniform(ends[place], ends[place + 1]))
        errors.append(rank_errors(x, values))
    return float(np.median(errors))


def word_rows(path: str, repeats: int = 20) -> Iterator[Row]:
    """Frequent words, one a client: how many of the 50 most frequent are found."""
    text = Path(path).read_text(encoding="utf-8").lower()
    spoken = [word for word in re.findall(r"[a-z']+", text) if word.strip("'")]
    schema = Schema.of({"word": {"text": 10, "alphabet": "a-z'"}})
    query = Words(column="word")
    rounds = query.rounds(schema)
    for clients, epsilon, least in ((50_000, 1.0, 0.95), (10_000, 4.0, 0.9), (10_000, 1.0, None)):
        noise = calibrate((1,) * rounds, epsilon=epsilon, delta=DELTA)
        recalls, invented, with_invented = [], 0, 0
        for number in range(repeats):
            picks = numpy_generator(number, "words", clients).choice(len(spoken), clients, False)
            said = [spoken[i] for i in picks]
            counts = Counter(said)
            common = {word for word, _ in counts.most_common(50)}
            table = Table.of({"word": said}, schema)
            found, made_up = word_answer(Released(query, table, noise), number)
            recalls.append(len(common & set(found.tables[0][0].labels)) / 50)
            invented += made_up
            with_invented += made_up > 0
        yield Row(
            f"words, n = {clients:,}, eps {epsilon:g}: top-50 recall; runs that invented",
            f">= {least}; <= 1 of {repeats}" if least else "-",
            f"{np.mean(recalls):.3f} (least {min(recalls):.2f}); {with_invented}, {noise.law}",
            "OLH on a known dictionary: "
            f"{above_four_deviations(Counter(spoken), clients, epsilon)} words above 4 sd",
            least is None or (float(np.mean(recalls)) >= least and with_invented <= 1),
        )


def word_answer(released: Released, seed: int) -> tuple[Answer, int]:
    """Ask all rounds; return the answer, and how many prefixes were kept that nobody has."""
    payload, invented = b"", 0
    for number in range(released.question.query.rounds(released.schema)):
        exact = released.exact(insecure_keystream(seed, "coins"), payload)
        noisy = released.noisy(exact, insecure_keystream(seed, "words", number))
        made = noisy, payload
        kept = survivors(released.question, noisy, released.noise, payload)
        invented += len(held_by_nobody(released, kept))
        if not kept:
            break
        payload = payload_of(kept)
    return answer(released.question, made[0], released.noise, CLIENTS, made[1]), invented


def held_by_nobody(released: Released, kept: Sequence[str]) -> list[str]:
    """Return the prefixes that begin no client's word."""
    said = np.unique(released.table.columns["word"])
    begun = {str(word)[: len(kept[0])] for word in said} if kept else set()
    return [prefix for prefix in kept if prefix.rstrip("\0") not in begun]


def above_four_deviations(counts: Counter[str], clients: int, epsilon: float) -> int:
    """Return how many words OLH would tell from noise: variance n 4e / (e - 1)^2 of a count."""
    p, q = probabilities("olh", 1000, epsilon)
    deviation = np.sqrt(clients * q * (1 - q)) / (p - q)
    whole = sum(counts.values())
    return sum(count * clients / whole > 4 * deviation for count in counts.values())


def bayes_rows(path: str, repeats: int = 20) -> Iterator[Row]:
    """Naive Bayes: accuracy on the 6,162 records that were not asked."""
    bins = {name: {**RANGES[name], "bins": 10} for name in ("age", "hr_per_week")}
    table = adult(path, **bins)
    order = numpy_generator(8, "split").permutation(len(table))
    train, test = table.take(order[:24_000]), table.take(order[24_000:])
    query = Bayes(label="income", features=FEATURES)

    def accuracy(one: Answer) -> float:
        return float(np.mean(one.classifier.predict(test) == test.columns["income"]))

    exact = Released(query, train, Noise("geometric", 1.0))
    clean = exact.exact(insecure_keystream(0, "coins"))
    plain = accuracy(answer(exact.question, clean, exact.noise, CLIENTS))
    for epsilon, least in ((1.0, 0.815), (0.1, 0.805)):
        noise = noise_for(query, train.schema, epsilon)
        seen = float(
            np.mean([accuracy(one) for one in Released(query, train, noise).answers(repeats, 9)])
        )
        yield Row(
            f"naive Bayes, {len(FEATURES)} features, eps {epsilon:g}: accuracy",
            f">= {least}",
            f"{seen:.3f} ({noise.law})",
            f"no noise {plain:.3f}, local reports {local_bayes(query, clean, test, epsilon):.3f}",
            seen >= least,
        )


def local_bayes(
    query: Bayes, clean: NDArray[np.int64], test: Table, epsilon: float, repeats: int = 5
) -> float:
    """Return the accuracy where each record reports every table locally, at eps / D each."""
    rng = numpy_generator(10, "local")
    classes = test.schema.column(query.label).labels
    labels = [test.schema.column(name).labels for name in query.features]
    ends = np.cumsum([len(classes) * len(each) for each in labels])[:-1]
    found = []
    for _ in range(repeats):
        tables = []
        for counts, each in zip(np.split(clean, ends), labels, strict=True):
            size, each_epsilon = counts.size, epsilon / len(labels)
            p, q = probabilities(choose(size, each_epsilon), size, each_epsilon)
            people = int(counts.sum())
            sums = rng.binomial(counts, p) + rng.binomial(people - counts, q)
            tables.append(oracle_counts(sums, people, p, q).reshape(len(classes), len(each)))
        made = classifier(query.label, classes, query.features, labels, tables)
        found.append(np.mean(made.predict(test) == test.columns["income"]))
    return float(np.mean(found))


def main(table_path: str, text_path: str) -> int:
    """Print a row for each claim; return how many demands are missed."""
    table = adult(table_path)
    missed = 0
    for rows in (
        histogram_rows(table),
        moment_rows(table),
        quantile_rows(table),
        bayes_rows(table_path),
        word_rows(text_path),
    ):
        for row in rows:
            missed += not row.met
            print(
                f"{row.name}\n    demand   {row.demand}\n    seen     {row.seen}"
                f"{'' if row.met else '   MISSED'}\n    baseline {row.baseline}",
                flush=True,
            )
    return missed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
