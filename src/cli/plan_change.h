/* What ergon plan says behind a refusal: the smallest change that would help. */
#ifndef ERG_CLI_PLAN_CHANGE_H
#define ERG_CLI_PLAN_CHANGE_H

#include "layout/document/layouts.h"

/* A layout is none of the search: with which degrees, or with how much memory, it would be. */
int erg_plan_say_change(struct erg_layout_remedy *remedy, const struct erg_layout_search *search,
                        const struct erg_layout *layout, struct erg_error *err);

/* Nothing fits: with how much memory or how many GPUs, or with which batch, something would. */
int erg_plan_say_needed(struct erg_layout_remedy *remedy, const struct erg_layout_search *search,
                        struct erg_error *err);

#endif
