"""Random PromQL that is well typed: what an expression gives decides what may be written inside it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.query.promql.ast import ValueType
from lakerunner.query.promql.functions import ANCHORED_SAFE, FUNCTIONS, SMOOTHED_SAFE
from tests.differential.promql import vocabulary as words
from tests.differential.promql.samples import END_MS, START_MS

#: What is left out, each for a reason:
#: - which series `limitk` takes, and `topk` and `bottomk` of equal values, depends on the order in which a store gives
#:   them: only what does not depend on it is asked for;
#: - quantiles of negative histograms: where no bucket reaches the rank, Prometheus takes the last one that the
#:   layout of the chunk happens to have;
#: - `timestamp` of a selector with both `@` and `offset`: Prometheus forgets the offset there, and only there.
#: Written by rules of their own, for the sake of their arguments.
_BY_HAND = frozenset(["info", "label_join", "label_replace", "sort_by_label", "sort_by_label_desc", *words.DATES])


@dataclass
class Grammar:
    chance: random.Random

    def expression(self) -> str:
        """Mostly vectors; now and then a scalar or a range, which range queries refuse."""
        depth = self.chance.choice([1, 2, 2, 3, 3, 4])
        if self.chance.random() < 0.05:
            return self.matrix(depth, "")
        return self.scalar(depth) if self.chance.random() < 0.05 else self.vector(depth)

    # -- vectors -----------------------------------------------------------------------------------------------

    def vector(self, depth: int) -> str:
        if depth <= 0:
            return self.selector() if self.chance.random() < 0.6 else self.range_call(0)
        rules: tuple[tuple[int, Callable[[int], str]], ...] = (
            (1, lambda _: self.selector()),
            (5, self.range_call),
            (4, self.call),
            (4, self.aggregation),
            (2, self.parametric),
            (4, self.binary),
            (2, self.binary_with_scalar),
            (2, self.set_operation),
            (2, self.histogram_call),
            (1, self.label_call),
            (1, self.unary),
            (1, self.date),
            (1, lambda left: f"({self.vector(left)})"),
            (1, self.info),
        )
        rule = self.chance.choices([rule for _, rule in rules], [weight for weight, _ in rules])[0]
        return rule(depth - 1)

    def selector(self, names: tuple[str, ...] = (), tail: bool = True) -> str:
        text = self.bare_selector(names) + (self.tail() if tail else "")
        return f"{text} smoothed" if tail and self.chance.random() < 0.03 else text

    def bare_selector(self, names: tuple[str, ...] = ()) -> str:
        matchers = self.chance.sample(words.MATCHERS, self.chance.choice([0, 0, 1, 1, 2]))
        # One a label: Prometheus' store changes their order, and so what `absent` makes of two.
        if len({re.split("[=!]", matcher)[0] for matcher in matchers}) < len(matchers):
            matchers = matchers[:1]
        if not names and self.chance.random() < 0.08:
            matchers = [f'__name__=~"{self.chance.choice(words.NAME_PATTERNS)}"', *matchers]
            return f"{{{','.join(matchers)}}}"
        if not names and self.chance.random() < 0.06:
            matchers.insert(self.chance.randint(0, len(matchers)), self.chance.choice(words.QUOTED))
            return f"{{{', '.join(matchers)}}}"
        pool = names or self.chance.choices([words.FLOATS, words.NATIVE, words.CLASSIC], [6, 3, 1])[0]
        return self.chance.choice(pool) + (f"{{{','.join(matchers)}}}" if matchers else "")

    def tail(self) -> str:
        out = []
        if self.chance.random() < 0.12:
            moment_ms = self.chance.randrange(START_MS, END_MS, 500)
            moments = [f"{moment_ms / 1000:.3f}", "start()", "end()", f"{moment_ms // 1000:_}", f"{moment_ms}e-3"]
            out.append(f" @ {self.chance.choice(moments)}")
        if self.chance.random() < 0.2:
            out.append(f" offset {self.chance.choice(words.OFFSETS)}")
        self.chance.shuffle(out)
        return "".join(out)

    def range_call(self, depth: int) -> str:
        names = [
            name for name, one in FUNCTIONS.items() if ValueType.MATRIX in one.args and one.returns is ValueType.VECTOR
        ]
        # Rates are what people ask for.
        name = self.chance.choice([*names, "rate", "increase", "rate", "increase", "delta", "irate"])
        args = [
            self.matrix(depth, name) if kind is ValueType.MATRIX else self.argument(name, kind, depth)
            for kind in FUNCTIONS[name].args
        ]
        return f"{name}({', '.join(args)})"

    def matrix(self, depth: int, function: str) -> str:
        # The time of the least of nearly equal computed values is a matter of their last digits.
        if depth > 0 and self.chance.random() < 0.3 and not function.startswith("ts_of_m"):
            step = self.chance.choice(words.SUBQUERY_STEPS)
            width = self.chance.choice(words.SUBQUERY_RANGES)
            return f"({self.vector(depth - 1)})[{width}:{step}]{self.tail()}"
        text = f"{self.bare_selector()}[{self.chance.choice(words.DURATIONS)}]{self.tail()}"
        if self.chance.random() < 0.12 and function in ANCHORED_SAFE:
            return f"{text} anchored"
        if self.chance.random() < 0.15 and function in SMOOTHED_SAFE:
            return f"{text} smoothed"
        return text

    def call(self, depth: int) -> str:
        names = [
            name
            for name, one in FUNCTIONS.items()
            if ValueType.MATRIX not in one.args and one.returns is ValueType.VECTOR and name not in _BY_HAND
        ]
        name = self.chance.choice(names)
        function = FUNCTIONS[name]
        count = len(function.args) - self.chance.randint(0, function.optional)
        return f"{name}({', '.join(self.argument(name, kind, depth) for kind in function.args[:count])})"

    def argument(self, name: str, kind: ValueType, depth: int) -> str:
        if kind is ValueType.VECTOR and name in ("sin", "cos", "tan"):
            # Of large numbers, and of computed ones near a pole, these show nothing but the last digit.
            return f"clamp({self.bare_selector()}, -100, 100)"
        if kind is ValueType.VECTOR:
            inner = self.vector(depth)
            both = name in ("timestamp", "start_timestamp") and "@" in inner and "offset" in inner
            negative = "histogram_quantile" in name and _may_be_negative(inner)
            return self.bare_selector() if both or negative else inner
        if kind is ValueType.STRING:
            return '"q"'
        if "quantile" in name:
            return self.chance.choice(
                ["0.5", "0.9", "0", "1", "0.25", "1.5", "-1", "NaN", self.changing(), self.scalar(0)]
            )
        if name == "double_exponential_smoothing":
            return self.chance.choice(["0.5", "0.1", "0.9", "0.25", "0.5", "0", "1.5", "NaN"])
        return self.scalar(min(depth, 1))

    def changing(self) -> str:
        return self.chance.choice(words.PARAMETERS)

    # -- aggregations ------------------------------------------------------------------------------------------

    def grouping(self) -> str:
        if self.chance.random() < 0.3:
            return ""
        labels = self.chance.sample(words.LABELS, self.chance.choice([0, 1, 1, 2, 3]))
        return f" {self.chance.choice(['by', 'without'])} ({', '.join(labels)}) "

    def aggregation(self, depth: int) -> str:
        return f"{self.chance.choice(words.PLAIN_AGGREGATIONS)}{self.grouping()}({self.vector(depth)})"

    def parametric(self, depth: int) -> str:
        rule = self.chance.choice(["topk", "bottomk", "quantile", "quantile", "count_values", "limit_ratio", "limitk"])
        inner = self.vector(depth)
        match rule:
            case "topk" | "bottomk":
                number = self.chance.choice(["1", "2", "5", "0", "-1", "2.9", "1e3", self.changing(), "NaN", "-1e20"])
                if self.chance.random() < 0.3:
                    return f"{rule}{self.grouping()}({number}, {self.bare_selector(('distinct',))}{self.tail()})"
                outer = self.chance.choice(["count", "sum", "max"])
                return f"{outer}({rule}{self.grouping()}({number}, {inner}))"
            case "limitk":
                number = self.chance.choice(["1", "2", "5", "0", "-3", "1e30", "NaN", self.changing()])
                return f"count({rule}{self.grouping()}({number}, {inner}))"
            case "quantile":
                return f"quantile{self.grouping()}({self.argument('quantile', ValueType.SCALAR, 0)}, {inner})"
            case "count_values":
                return self.count_values(inner)
        number = self.chance.choice(["0.5", "-0.5", "0.1", "1", "2", "-0.9", "-1", "-3", "NaN", "0", self.changing()])
        return f"limit_ratio{self.grouping()}({number}, {inner})"

    def count_values(self, inner: str) -> str:
        # Rounded: a digit far behind the point would make another label.
        if self.chance.random() < 0.7 or "(" in inner:
            inner = f"round({inner}, 0.25)"
        label = self.chance.choice(["v", "v", "job", "le", "a.b", "__name__", "ü", ""])
        return f'count_values{self.grouping()}("{label}", {inner})'

    # -- operators ---------------------------------------------------------------------------------------------

    def binary(self, depth: int) -> str:
        left, right = self.vector(depth), self.vector(depth)
        if self.chance.random() < 0.5:
            # The same metric twice, or two with the same labels: most matches of two random vectors are empty.
            right = (
                left
                if self.chance.random() < 0.3
                else f"{self.chance.choice(['sum', 'max', 'avg'])} by (job, instance) ({right})"
            )
        operator = self.chance.choice(words.ARITHMETIC + words.COMPARISONS + words.TRIMS)
        if operator in words.COMPARISONS and self.chance.random() < 0.4:
            operator += " bool"
        return f"({left}) {operator}{self.matching(grouped=True)} ({right})"

    def matching(self, grouped: bool) -> str:
        if self.chance.random() < 0.3:
            return ""
        labels = self.chance.sample(
            ("job", "instance", "code", "le", "zone", "missing"), self.chance.choice([0, 1, 2, 2, 3])
        )
        if self.chance.random() < 0.5:
            labels = ["job", "instance"]
        out = f" {self.chance.choice(['on', 'on', 'ignoring'])} ({', '.join(labels)})"
        if grouped and self.chance.random() < 0.4:
            extra = [
                label
                for label in self.chance.sample(("zone", "code"), self.chance.choice([0, 0, 1]))
                if label not in labels
            ]
            out += f" {self.chance.choice(['group_left', 'group_right'])} ({', '.join(extra)})"
        if grouped and self.chance.random() < 0.15:
            out += self.chance.choice(words.FILLS)
        return out

    def binary_with_scalar(self, depth: int) -> str:
        operator = self.chance.choice(words.ARITHMETIC + words.COMPARISONS + words.TRIMS)
        if operator in words.COMPARISONS and self.chance.random() < 0.4:
            operator += " bool"
        sides = [f"({self.vector(depth)})", f"({self.scalar(min(depth, 1))})"]
        if operator not in words.TRIMS:
            self.chance.shuffle(sides)
        return f"{sides[0]} {operator} {sides[1]}" if self.chance.random() < 0.9 else f"{self.bare_operation()}"

    def bare_operation(self) -> str:
        """Operators without parentheses around their sides: what binds first is for the parser to know."""
        count = self.chance.randint(2, 4)
        operands = [self.chance.choice([self.selector(), *words.NUMBERS]) for _ in range(count - 1)]
        operands.insert(self.chance.randrange(count), self.selector())
        out = operands[0]
        for operand in operands[1:]:
            sign = self.chance.choice(["", "", "", "-", "+", "--"])
            out += f" {self.chance.choice((*words.ARITHMETIC, *words.COMPARISONS))} {sign}{operand}"
        return out

    def set_operation(self, depth: int) -> str:
        operator = self.chance.choice(words.SETS)
        return f"({self.vector(depth)}) {operator}{self.matching(grouped=False)} ({self.vector(depth)})"

    def unary(self, depth: int) -> str:
        return f"{self.chance.choice('+-')}({self.vector(depth)})"

    def date(self, depth: int) -> str:
        name = self.chance.choice(words.DATES)
        times = f"timestamp({self.bare_selector()}) * {self.chance.choice(['1', '9', '-3', '0.7'])}"
        return f"{name}({self.chance.choice(['', times, times, times, self.vector(depth)])})"

    # -- functions that ask for particular input ---------------------------------------------------------------

    def histogram_call(self, depth: int) -> str:
        """Histogram functions on histograms: on anything else they say nothing."""
        inner = self.histograms(depth)
        if _may_be_negative(inner):
            return f"histogram_count({inner})"
        quantile = self.argument("quantile", ValueType.SCALAR, 0)
        classic = self.chance.choice(
            [f"rate(latency_bucket[{self.chance.choice(words.DURATIONS)}])", self.bare_selector(words.CLASSIC)]
        )
        return self.chance.choice(
            [
                f"histogram_quantile({quantile}, {inner})",
                f"histogram_quantile({quantile}, {classic})",
                f"histogram_quantile({quantile}, sum by (le, job) ({classic}))",
                f'histogram_quantiles({inner}, "q", 0.5, 0.9)',
                f'histogram_quantiles({classic}, "{self.chance.choice(["q", "le", "job", "a.b"])}", {quantile}, 0.123)',
                f"histogram_fraction({self.scalar(0)}, {self.scalar(0)}, {inner})",
                f"histogram_fraction(0.2, {self.scalar(0)}, {classic})",
                # Not to histogram_quantiles: Prometheus adds such buckets up anew for every quantile.
                f"histogram_quantile({quantile}, {self.bare_selector(('doubled_bucket',))})",
                f"histogram_fraction(-0.5, {self.scalar(0)}, {self.bare_selector(('doubled_bucket',))})",
                f"histogram_count({inner})",
                f"histogram_sum({inner})",
                f"histogram_avg({inner})",
                f"histogram_stddev({inner})",
                f"histogram_stdvar({inner})",
                inner,
            ]
        )

    def histograms(self, depth: int) -> str:
        selector = self.bare_selector(words.NATIVE)
        name = self.chance.choice(["rate", "increase", "delta", "sum_over_time", "avg_over_time", "last_over_time"])
        ranged = f"{name}({selector}[{self.chance.choice(words.DURATIONS)}]{self.tail()})"
        if depth <= 0:
            return self.chance.choice([selector + self.tail(), ranged])
        below = self.histograms(depth - 1)
        return self.chance.choice(
            [
                ranged,
                below,
                f"{self.chance.choice(['sum', 'avg'])}{self.grouping()}({below})",
                f"({below}) {self.chance.choice('+-')}{self.matching(grouped=False)} ({self.histograms(depth - 1)})",
                # Finite factors: the empty buckets that a chunk's layout has become NaN with others.
                f"({below}) {self.chance.choice('*/')} {self.chance.choice(['2', '0.5', '-1', '3.25', '0'])}",
                f"({below}) {self.chance.choice(words.TRIMS)} {self.scalar(0)}",
                f"({below}) {self.chance.choice(['==', '!='])} ({self.histograms(depth - 1)})",
                f"-({below})",
                f"sum_over_time(({below})[2m:{self.chance.choice(['', '30s'])}])",
            ]
        )

    def label_call(self, depth: int) -> str:
        inner = self.vector(depth)
        target = self.chance.choice(["job", "new", "__name__", "instance"])
        source = self.chance.choice(words.LABELS).strip('"')
        odd = self.chance.choice(["a.b", "", "ü", "__name__", "1x", "job"])
        common = self.chance.choice(["job", "instance"])
        return self.chance.choice(
            [
                f'label_replace({inner}, "{target}", "x-$1", "{source}", "(.).*")',
                f'label_replace({inner}, "{target}", "", "{source}", ".*")',
                f'label_replace({inner}, "{target}", "$first", "{source}", "(?P<first>[a-z]+)[0-9]*")',
                f'label_join({inner}, "{target}", "-", "{source}", "instance")',
                f'label_replace({inner}, "{target}", "${{1}}-$$-$2$x", "{source}", "(i?)(.*)")',
                f'label_replace({inner}, "{odd}", "$0", "{source}", "api|i1|")',
                f'label_replace({inner}, "{target}", "v", "no.such", "")',
                f'label_join({inner}, "{odd}", "-ü-", "{source}", "host.name", "{source}")',
                f'label_join({inner}, "{target}", "")',
                f'sort_by_label({inner}, "version")',
                f'sort_by_label_desc({inner}, "version", "on")',
                f"sort_by_label({inner})",
                f'sort_by_label({inner}, "{common}")',
                f'sort_by_label_desc({inner}, "{common}", "instance")',
            ]
        )

    def info(self, depth: int) -> str:
        selectors = [
            *("", "", ', {version=~".+"}', ', {cluster="capi"}', ', {version="1"}', ', {__name__="target_info"}'),
            *(', {__name__="build_info"}', ', {__name__=~".*_info"}', ', {__name__=~"(target|build)_info", build!=""}'),
            *(', {__name__!="target_info"}', ', {__name__="twice_info"}', ', {__name__=~"target_info|rival_info"}'),
            *(
                ', {build=~"i.*"}',
                ', {missing=""}',
                ', {version!="1"}',
                ", {}",
                ', {job="api"}',
                ', {__name__!~"t.*|d.*"}',
            ),
        ]
        return f"info({self.vector(min(depth, 1))}{self.chance.choice(selectors)})"

    # -- scalars -----------------------------------------------------------------------------------------------

    def scalar(self, depth: int) -> str:
        pick = self.chance.random()
        if depth <= 0 or pick < 0.5:
            return self.chance.choice(words.NUMBERS)
        if pick < 0.6:
            return self.chance.choice(["time()", "pi()", "start()", "end()", "step()", "range()", "time() % 60"])
        if pick < 0.75:
            return f"scalar({self.vector(depth - 1)})"
        if pick < 0.8:
            return f"{self.chance.choice(['min_of', 'max_of'])}({self.scalar(depth - 1)}, {self.scalar(depth - 1)})"
        operator = self.chance.choice([*words.ARITHMETIC, *(f"{one} bool" for one in words.COMPARISONS)])
        return f"({self.scalar(depth - 1)} {operator} {self.scalar(depth - 1)})"


def _may_be_negative(text: str) -> bool:
    return any(sign in text for sign in ("-(", "* -", "/ -", ") - ", ") -on", "(-", "delta("))
