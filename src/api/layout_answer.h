/*
 * Layouts of a job, asked and answered as text for people or as JSON: one layout, one next to the
 * best, or the best of all, at the highest clock or over clocks, on GPUs of one kind or several.
 */
#ifndef ERG_API_LAYOUT_ANSWER_H
#define ERG_API_LAYOUT_ANSWER_H

#include "api/layout_query.h"

#include <stdio.h>

/* Those not given are NAN, NULL, ERG_NOT_GIVEN or below 0. */
struct erg_layouts_asked {
    struct erg_layout_input input;
    const char *why;    /* a layout to show next to the best */
    const char *output; /* the folder for all that was found */
    int export;         /* enum erg_export_format, or one below */
    int planner;        /* enum erg_planner */
    bool slots;         /* where the groups of the best layout lie on a node */
};

/* Exports beyond enum erg_export_format. */
enum { ERG_LAYOUTS_EXPORT_PROFILE = 2, ERG_LAYOUTS_EXPORT_JOB };

enum erg_planner { ERG_PLANNER_OWN, ERG_PLANNER_ARENA };

/* Everything of one call. */
struct erg_layouts_call {
    FILE *text, *json; /* for people, and a document: exports and --why have none */
    const struct erg_layouts_asked *asked;
    struct erg_layout_input input;
    struct erg_layout_query query;
};

/* Finds what `asked` asks of the job at `path`, and prints it both ways. A refusal because
 * nothing fits is a document, too. */
int erg_layouts_answer(FILE *text, FILE *json, const struct erg_layouts_asked *asked,
                       const char *path, struct erg_error *err);

/* Its parts: where the groups of the best layout lie on a node (layout_places.c), and the published
 * planner's grids (layout_arena.c). */
int erg_layouts_places(struct erg_layouts_call *call, struct erg_error *err);
int erg_layouts_arena(const struct erg_layouts_call *call, struct erg_error *err);

#endif
