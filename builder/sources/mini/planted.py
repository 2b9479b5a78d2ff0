"""What is planted in mini: its clusters, their strengths, and their shares of the queries."""

from builder.shifts import length, wh

CLUSTERS = {"topic": ("c0", "c1", "c2", "c3", "c4"), "wh": wh.CLUSTERS, "length": length.CLUSTERS}
STRENGTHS = {"topic": (0.40, 0.32, 0.24, 0.16, 0.08), "wh": (0.3, 0.2, 0.1), "length": (0.2, 0.1)}
TOPIC_SHARES = (0.18, 0.18, 0.18, 0.18, 0.18, 0.10)  # the last is "others"
WH_SHARES = (0.30, 0.25, 0.20, 0.25)  # the last is "no wh word"
LENGTH_SHARES = (0.5, 0.5)
DL_SIZES = {"dl19": 43, "dl20": 54}
DEV_SHARE = 0.10
VALIDATION_SHARE = 0.02
TEST_SHARE = 0.20
ASPECTS = 20
