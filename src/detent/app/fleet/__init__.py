"""One supervisor process and the workers below it: what `detent worker` and `detent up` run."""
