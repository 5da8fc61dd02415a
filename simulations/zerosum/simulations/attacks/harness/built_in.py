"""Name the attacks that ship with the package, and the files that have them."""

BUILT_IN: dict[str, tuple[str, ...]] = {
    "gradient-inversion": (
        "inversion.gradient_matching:GradientMatching",
        "inversion.first_layer:FirstLayer",
        "inversion.features:FeatureInversion",
        "inversion.likeliest_image:LikeliestImage",
    ),
    "imprint": ("inversion.imprint:Imprint",),
    "imprint-on-one-client": ("inversion.imprint:Imprint",),
    "averaging-repeated-answers": ("inversion.repetition:Repetition",),
    "differencing": ("inversion.differencing:Differencing",),
    "property-inference": ("inference.property_inference:PropertyInference",),
    "membership-inference": ("inference.membership:LossThreshold",),
    "model-inversion": ("inference.model_inversion:ModelInversion",),
    "differencing-of-counts": ("published.differencing_counts:Subtracting",),
    "reconstruction-from-subset-sums": ("published.subset_sums:LeastSquares",),
    "all-consistent-records": ("published.small_tables:ConsistentRecords",),
    "linkage-on-quasi-identifiers": ("published.linkage:Linkage",),
    "lying-about-counts": ("published.lying_counts:AddingRecords",),
    "lying-about-dropouts": ("protocol.dropout_lies:LyingAboutDropouts",),
    "request-binding": ("protocol.request_binding:RequestBinding",),
    "weak-masks-short-seed": ("protocol.weak_seeds:SeedSearch",),
    "weak-masks-one-scalar": ("protocol.weak_masks:ScalarMasks",),
    "weak-masks-reused": ("protocol.weak_masks:ReusedMasks",),
    "model-replacement": ("poisoning.replacement:ModelReplacement",),
    "backdoor-by-data": ("poisoning.backdoors:BadNets",),
    "distributed-backdoor": ("poisoning.backdoors:DistributedBackdoor",),
    "sign-flip": ("poisoning.opposing:SignFlip",),
    "inner-product": ("poisoning.opposing:InnerProduct",),
    "a-little-is-enough": ("poisoning.hiding:LittleIsEnough",),
    "min-max": ("poisoning.hiding:MinMax",),
    "tailored-to-the-rule": ("poisoning.tailored:Tailored",),
    "tailored-backdoor": ("poisoning.tailored:TailoredBackdoor",),
}
"""Of each name, modules of this package whose ``ATTACKS`` have it, each with its first class.

In the order of the table. Written down, because importing the modules to ask them for the names of
their attacks takes seconds, which a list or a misspelt name would have to wait for.
"""

PACKAGE = "zerosum.simulations.attacks"
