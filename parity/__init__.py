"""The suite: what is asked, of whom, how it is measured, judged and explained."""
