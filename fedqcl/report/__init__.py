"""Tables, figures and a page of many runs, made from their files alone."""
