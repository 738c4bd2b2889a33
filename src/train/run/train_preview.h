/* The text of ergon train --dry-run. */
#ifndef ERG_TRAIN_RUN_TRAIN_PREVIEW_H
#define ERG_TRAIN_RUN_TRAIN_PREVIEW_H

#include "train/run/run_preview.h"

#include <stdio.h>

void erg_train_preview_print(FILE *out, const struct erg_run_preview *preview);

#endif
