"""Which host gets which chunk: pure decisions, and the plugin that applies them."""
