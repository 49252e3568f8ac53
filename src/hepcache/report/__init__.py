"""What a run did: record, summary, figures, HTML."""
