/*
 * Interrupt: SIGINT, SIGTERM and SIGHUP set a flag; loops that take long ask for it between two
 * steps, so that a finished step is never lost. Other signals may ask for something, and end
 * nothing.
 */
#ifndef ERG_BASE_INTERRUPT_H
#define ERG_BASE_INTERRUPT_H

#include "ergon/error.h"

#include <stdbool.h>

/* SIGINT, SIGTERM and, unless it is ignored as by nohup(1), SIGHUP, which comes when the terminal
 * closes; a second one kills at once. A file that grows beyond its limit (SIGXFSZ) is an error of
 * the write. */
void erg_interrupt_install(void);
void erg_interrupt_on(int number); /* another signal, which is noticed likewise */

/* A signal that asks for something and ends nothing; true once after each time that it came. */
void erg_interrupt_request_on(int number);
bool erg_interrupt_take_request(void);

/* Interrupted by a signal, or by the caller of the present call (base/call.h). */
bool erg_interrupted(void);
int erg_interrupt_signal(void); /* its number, 0 while none came */

/* -1 with status ERG_INTERRUPTED when it was, 0 otherwise. */
int erg_interrupt_check(struct erg_error *err);

/* For work whose finished steps are on the disk: adds a note to an `err` by an interrupt. */
void erg_interrupt_explain(struct erg_error *err);

#endif
