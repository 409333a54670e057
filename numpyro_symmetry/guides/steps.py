"""The bar of a guide's set-up, which says in the end what takes as long once more: compiling, under a bar not ours."""

from functools import partial

from numpyro_symmetry.steps import saying

setting_up = partial(
    saying,
    "setting up the guide",
    after="the guide is set up; what runs next compiles first, which may take as long",
)
