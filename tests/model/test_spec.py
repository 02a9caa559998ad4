import pytest

from nsfa.model import PRESETS, Gamma, ModelSpec, Priors, preset

BAD = [
    (lambda: preset("pca"), "model must be one of fa, afa, fok, sfa, nsfa, bfrm. Got 'pca'"),
    (lambda: preset("sfa"), "n_components must be an int >= 1. Got None; use NSFA to infer it"),
    (lambda: preset("sfa", n_components=0), "n_components must be an int >= 1. Got 0"),
    (lambda: preset("fa", n_components=2.5), "n_components must be an int >= 1. Got 2.5"),
    (lambda: preset("fa", n_components=True), "n_components must be an int >= 1. Got True"),
    (lambda: preset("nsfa", n_components=5), "n_components must be None when the number of factors is inferred"),
    (lambda: preset("nsfa", concentration=0), "concentration must be a positive number below 10000, or 'infer'. Got 0"),
    (
        lambda: preset("nsfa", concentration=-1.0),
        "concentration must be a positive number below 10000, or 'infer'. Got -1.0",
    ),
    (
        lambda: preset("nsfa", concentration="guess"),
        "concentration must be a positive number below 10000, or 'infer'. Got 'guess'",
    ),
    (lambda: preset("nsfa", stickiness=float("inf")), "stickiness must be a positive number below"),
    (lambda: preset("nsfa", spike=1.0), r"spike must lie in \[0, 1\). Got 1.0"),
    (lambda: preset("nsfa", birth_scale=0.0), "birth_scale must be a positive finite number"),
    (
        lambda: preset("nsfa", noise="heavy"),
        "noise must be one of 'diagonal', 'isotropic', 'shared', 'robust'. Got 'heavy'",
    ),
    (lambda: preset("nsfa", sweep="fast"), "sweep must be one of"),
    (lambda: preset("nsfa", scores="dirichlet"), "pattern 'ibp' needs scores='gaussian'"),
    (lambda: preset("nsfa", priors=None), "priors must be a Priors object. Got None"),
    (lambda: Gamma(0.0, 1.0), "Gamma shape must be a positive finite number. Got 0.0"),
    (lambda: Gamma(1.0, -2.0), "Gamma rate must be a positive finite number. Got -2.0"),
    (lambda: Priors(loading_shape=0), "priors.loading_shape must be a positive finite number. Got 0"),
    (lambda: Priors(loading_rate=-1.0), "priors.loading_rate must be a positive finite number"),
    (lambda: Priors(noise=1.0), r"priors.noise must be a Gamma\(shape, rate\). Got 1.0"),
    (lambda: Priors(reliability=1.5), "priors.reliability must lie between 0 and 1"),
    (lambda: Priors(sparsity=(5.0, 2.0)), r"priors.sparsity\[1\] must lie between 0 and 1"),
]


@pytest.mark.parametrize(("build", "sentence"), BAD)
def test_bad_settings_get_one_sentence(build, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_presets_are_the_papers_table():
    rows = {n: (s.pattern, s.precision, s.scores) for n, s in PRESETS.items()}
    assert rows == {
        "fa": ("dense", "shared", "gaussian"),
        "afa": ("dense", "factor", "gaussian"),
        "fok": ("dense", "element", "gaussian"),
        "sfa": ("finite", "factor", "gaussian"),
        "nsfa": ("ibp", "factor", "gaussian"),
        "bfrm": ("two-level", "factor", "dirichlet"),
    }


def test_specifications_are_values():
    assert preset("sfa", n_components=3) == preset("sfa", n_components=3)
    assert hash(ModelSpec()) == hash(preset("nsfa"))
    with pytest.raises(AttributeError):
        ModelSpec().noise = "shared"


@pytest.mark.parametrize("name", ["fa", "afa", "fok"])
def test_dense_models_refuse_more_factors_than_the_table_has_rank(name):
    with pytest.raises(ValueError, match=r"at most min\(n_samples, n_features\) = 7 for .*Got 8"):
        preset(name, n_components=8).check_shape(7, 30)


def test_sparse_models_may_have_more_factors_than_samples():
    preset("sfa", n_components=40).check_shape(30, 7)
