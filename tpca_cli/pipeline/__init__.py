"""What each command does, stage by stage: the only package that knows the order of the stages."""
