"""What the docstring of a public name says: each parameter, what comes back, and how it is used."""

import inspect

import pytest

import numpyro_symmetry
from tests.support import public

# of `typing.Protocol`, and of a method that stands in another module than its class
NOT_ASKED_FOR = {"self", "cls", "guide", "symmetry", "args", "kwargs"}


def parameters_of(value):
    try:
        return set(inspect.signature(value).parameters)
    except ValueError:  # an exception has no signature of its own
        return set()


@pytest.mark.parametrize("name", public.names())
def test_parameters_are_described(name):
    value = public.names()[name]
    found = public.sections(value)
    said = {part.lstrip("*") for title in ("Parameters", "Attributes") for part in public.entries(found.get(title, ""))}
    assert parameters_of(value) - said <= NOT_ASKED_FOR


@pytest.mark.parametrize("name", [name for name, value in public.names().items() if inspect.isroutine(value)])
def test_what_comes_back_is_described(name):
    value = public.names()[name]
    is_none = inspect.signature(value).return_annotation in (None, "None")
    assert ("Returns" in public.sections(value)) != is_none


@pytest.mark.parametrize("name", [name for name, value in public.names().items() if inspect.isroutine(value)])
def test_functions_and_methods_have_an_example(name):
    owner, _, method = name.rpartition(".")
    of_class = public.named(owner)
    shown = public.sections(of_class).get("Examples", "") if inspect.isclass(of_class) else ""
    # a line of the class's own example will do
    assert ">>>" in public.sections(public.names()[name]).get("Examples", "") or f".{method}(" in shown


@pytest.mark.parametrize("name", numpyro_symmetry.__all__)
def test_names_of_the_top_have_an_example(name):
    value = getattr(numpyro_symmetry, name)
    if not inspect.ismodule(value) and not (inspect.isclass(value) and issubclass(value, Exception | Warning)):
        assert ">>>" in public.sections(value)["Examples"]
