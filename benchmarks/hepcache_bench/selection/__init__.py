"""The selection of candidate slices: the published study's application, in both workflows."""
