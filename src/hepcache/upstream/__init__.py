"""Every private name of other packages that hepcache uses, with a public way beside it."""
