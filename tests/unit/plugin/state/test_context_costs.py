"""What is learned of contexts from tenants, of whom some may lie."""

from aliquot.plugin.state.context_costs import MOST_BYTES, ContextCosts
from aliquot.units import MIB


def test_a_namespace_teaches_itself_alone_until_another_one_has_been_seen():
    """One that makes contexts look dear is charged for that; others go by the cheapest of several."""
    costs = ContextCosts()
    costs.learn("H200", "liar", 900 * MIB)
    assert costs.of("H200", "liar") == 900 * MIB
    assert costs.of("H200", "new") == 0
    costs.learn("H200", "honest", 500 * MIB)
    assert costs.of("H200", "new") == 500 * MIB
    assert costs.of("H200", "liar") == 900 * MIB
    assert costs.of("A100", "honest") == 0


def test_the_cheapest_sample_of_a_namespace_counts():
    """The others have loaded modules, too."""
    costs = ContextCosts()
    for cost in (600 * MIB, 500 * MIB, 700 * MIB):
        costs.learn("H200", "team", cost)
    assert costs.of("H200", "team") == 500 * MIB


def test_what_no_context_costs_is_not_learned():
    """It was taken past the interceptor."""
    costs = ContextCosts()
    costs.learn("H200", "liar", MOST_BYTES + 1)
    assert costs.of("H200", "liar") == 0
