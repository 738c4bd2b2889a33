/*
 * Reader: a thread that does one piece of work while its owner does another, again and again. So
 * the tokens of the next step are read while the device computes this one, and the remaining wait
 * of the step is measured.
 */
#ifndef ERG_TRAIN_ENGINE_READER_H
#define ERG_TRAIN_ENGINE_READER_H

#include <stdbool.h>

struct erg_reader;

/* `work` is done on the reader's thread; where none can be started, by erg_reader_wait(). */
struct erg_reader *erg_reader_open(void (*work)(void *context), void *context);
/* Waits for work that has begun. NULL is fine. */
void erg_reader_close(struct erg_reader *reader);

/* Begins the work. Until the wait for it has returned, its data belongs to the thread. */
void erg_reader_begin(struct erg_reader *reader);
/* Seconds that the work was waited for; 0 where none has begun. */
double erg_reader_wait(struct erg_reader *reader);

#endif
