from ckptdoctor.writing import Copy, Generated, Literal, Recipe


def test_a_recipe_counts_its_bytes_and_those_that_are_new():
    """``size`` is everything, ``new_bytes`` everything but the copied ranges."""
    recipe = Recipe("x", (Literal(b"abc"), Copy(7, 100), Generated(20, lambda: iter([b"z" * 20])), Copy(0, 1)))
    assert recipe.size == 124
    assert recipe.new_bytes == 23
