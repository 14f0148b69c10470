"""Pure functions from Records to the contents of the page: panels, crossovers, fits, predictions, sentences."""
