/* Answers as they are made: a question is asked within a call, and its forms are written to
 * streams. */
#ifndef ERG_API_ANSWER_H
#define ERG_API_ANSWER_H

#include "ergon/ask.h"

#include <stdbool.h>
#include <stdio.h>

enum erg_answer_form { ERG_ANSWER_TEXT, ERG_ANSWER_JSON, ERG_ANSWER_CSV, ERG_ANSWER_FORMS };

struct erg_answer {
    FILE *files[ERG_ANSWER_FORMS]; /* NULL: nothing was written, or it is closed */
    char *texts[ERG_ANSWER_FORMS]; /* NULL: it has none */
    size_t counts[ERG_ANSWER_FORMS];
    int checked; /* -1: what was asked about does not hold, for `reason` */
    struct erg_error reason;
};

struct erg_ask_call {
    struct erg_answer *answer; /* NULL after the question: this rank only took part */
    const void *question;      /* as far as the caller's goes */
    int (*ask)(struct erg_ask_call *at, struct erg_error *err);
};

/* Asks it, in a call with this watch. */
int erg_answer_ask(struct erg_answer **answer,
                   int (*body)(struct erg_ask_call *at, struct erg_error *err),
                   const void *question, const struct erg_watch *watch, struct erg_error *err);

/* The same on this thread, without a call of its own. */
int erg_answer_ask_here(struct erg_answer **answer,
                        int (*body)(struct erg_ask_call *at, struct erg_error *err),
                        const void *question, struct erg_error *err);

/* Where a form is written; NULL, and the error, without memory. And of text and JSON. */
FILE *erg_answer_pen(struct erg_answer *answer, enum erg_answer_form form, struct erg_error *err);
bool erg_answer_pens(struct erg_answer *answer, struct erg_error *err);

/* The return value of a question after `result`: a failure behind a part that was written is an
 * answer, whose check fails. */
int erg_answer_settle(struct erg_answer *answer, int result, const struct erg_error *err);

#endif
