"""What no rebuilding can reproduce of the published lists, by shift, and why."""

LIMITS: dict[str, tuple[str, ...]] = {
    "topic": (
        "The seed of k-means, its initialisation and its number of iterations are not given (ECIR 2023 §3.1); another "
        "seed finds other clusters.",
        "The encoder is 'a pre-trained DistilBERT that has not been fine-tuned' (footnote 4): neither its checkpoint "
        "(cased or uncased, revision) nor the length at which queries were cut is given.",
        "Which queries were clustered is not given: all training queries, or those with judgements. arXiv 2205.02870 "
        "§3.1 speaks of 'the entire set of 400k queries', ECIR 2023 of 500k; the released list has 398,792 rows.",
        "In which order topics join clusters, from which centroid 'nearest' is measured and when a topic stops is not "
        "said ('until we have groups of about 25k queries'). Here they take turns, from the native centroid, until "
        "another cluster would bring the topic no nearer to the size.",
        "The size is 25k in ECIR 2023 and 30k, split 26,000 to 6,200, in arXiv 2205.02870; the released test sets "
        "(5,868 to 6,595 queries, 31,244 in all) fit the latter, as a fifth of about 31,250 queries a topic.",
        "The draw of test queries has no seed; only their share, about a fifth, can be the same.",
        "Topics are numbered in no stated order; here the largest native cluster comes first.",
    ),
    "wh": (
        "Membership is a rule without exception on the released test sets, and is the same for every query. Which "
        "queries of a cluster were kept (48,500 train and 6,500 test, arXiv 2205.02870 §3.1), and which of them test, "
        "was drawn without a stated seed.",
        "The token rule is this project's variant; it cannot give the published sets, which are by substring.",
    ),
    "length": (
        "Membership is a rule without exception on the released test sets, and is the same for every query; the test "
        "queries are dev-small, so nothing is drawn. Which training queries were kept is not stated.",
        "The paper says 'median length of 6 words'; the released lists have up to 5 words in short, counted between "
        "single spaces.",
    ),
    "resttest": (
        "The encoder of the queries is an 'embedding model' by citation alone (CIKM 2022 §4.1.1), the seed of k-means "
        "is not given, and buckets are numbered in no stated order.",
        "Which training queries were clustered with the test queries is not given.",
    ),
    "restrain": (
        "The encoder of the queries is an 'embedding model' by citation alone (CIKM 2022 §4.1.1).",
        "I and E are not given ('we can tune I and E'); here they are solved for from the sizes.",
        "How the extrapolation set was reduced to its size is not given. The released sets are nested, and no query is "
        "in both regimes at any two sizes, as here: the queries that are farthest, drawn at random among equals.",
        "The released sets of size 14k, 45k and 200k hold 13,175 to 13,763, 42,725 to 44,747 and 194,113 to 200,137 "
        "queries, interpolation fewer than extrapolation; here both regimes have the same number.",
    ),
    "chameleons": (
        "The rankers' runs are not released with the lists; other runs of the same rankers differ.",
        "How equal values at the boundary were parted is not given (CIKM 2021 §2.3); here the lower mean over all "
        "rankers goes first, then the lower id.",
    ),
}
