"""The paper's programme beside the library: recipes, published data, results, and the page on its claims."""
