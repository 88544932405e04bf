/* What checkpoints hold, value by value. */
#ifndef TESTS_TRAIN_CHECKPOINT_VALUES_H
#define TESTS_TRAIN_CHECKPOINT_VALUES_H

/* Asserts that two checkpoints hold the same bits of parameters and optimizer state, the same loss scale and the same
 * number of updates. */
void expect_same_checkpoints(const char *one, const char *other);

#endif
