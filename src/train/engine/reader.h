/*
 * Reader: a thread that repeatedly does one piece of work while its owner does another. So the
 * tokens of the next step are read while the device computes this one, and the step's remaining
 * wait is measured.
 */
#ifndef ERG_TRAIN_ENGINE_READER_H
#define ERG_TRAIN_ENGINE_READER_H

#include <stdbool.h>

struct erg_reader;

/* The reader's thread does `work`; if it cannot be started, erg_reader_wait() does. */
struct erg_reader *erg_reader_open(void (*work)(void *context), void *context);
/* Waits for running work. NULL is fine. */
void erg_reader_close(struct erg_reader *reader);

/* Begins the work. Its data belongs to the thread until erg_reader_wait() returns. */
void erg_reader_begin(struct erg_reader *reader);
/* Waits for the work; returns the seconds of the wait, 0 if none has begun. */
double erg_reader_wait(struct erg_reader *reader);

#endif
