"""The paper's experiments and our own on the same data: a module is an idea, a recipe is a list of its cells."""
