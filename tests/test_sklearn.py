"""scikit-learn's own checks of every estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from nsfa import AFA, BFRM, FA, FOK, NSFA, SFA, SPCA, FactorModel

SHORT = {"chains": 1, "tune": 5, "draws": 6, "random_state": 0}
FIXED = {**SHORT, "n_components": 2}
ESTIMATORS = [
    NSFA(**SHORT),
    FactorModel(**SHORT),
    *(model(**FIXED) for model in (SFA, FA, AFA, FOK, BFRM)),
    SPCA(n_components=2),
]


@pytest.mark.filterwarnings("ignore:.*(do not vary|The fit has no factors):UserWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)
