"""From raw objects to segments on Spark: boxers, which make work items, and the stages that do them."""
