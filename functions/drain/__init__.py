"""The scheduled pass over what is due and no hint has served."""
