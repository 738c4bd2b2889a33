/*
 * Interrupt: SIGINT, SIGTERM and SIGHUP set a flag; loops that take long check it between two
 * steps, so that a finished step is never lost. Further signals can stop a run too (_on), or only
 * request something (_request_on).
 */
#ifndef ERG_BASE_INTERRUPT_H
#define ERG_BASE_INTERRUPT_H

#include "ergon/error.h"

#include <stdbool.h>

/* SIGINT, SIGTERM and, unless it is ignored as by nohup(1), SIGHUP, which comes when the terminal
 * closes; a second one of the same kind kills at once. A file that grows beyond its limit (SIGXFSZ)
 * is an error of the write. */
void erg_interrupt_install(void);
/* Another signal, handled like these; a second one does not kill. */
void erg_interrupt_on(int number);

/* A signal that requests something and ends nothing; true once if any came since the last take. */
void erg_interrupt_request_on(int number);
bool erg_interrupt_take_request(void);

/* Interrupted by a signal, or by the caller of the present call (base/call.h). */
bool erg_interrupted(void);
/* The number of the latest signal; 0: none came, even if the caller cancelled. */
int erg_interrupt_signal(void);

/* -1 with status ERG_INTERRUPTED if interrupted, 0 otherwise. */
int erg_interrupt_check(struct erg_error *err);

/* If `err` is an interrupt, replaces its message by "interrupted; finished measurements are stored,
 * run the same command to continue". */
void erg_interrupt_explain(struct erg_error *err);

#endif
