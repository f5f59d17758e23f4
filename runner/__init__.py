"""What happens next: bundles, proposals, the pipeline, decisions, settings, the command line."""
