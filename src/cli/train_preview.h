/* What ergon train --dry-run prints. */
#ifndef ERG_CLI_TRAIN_PREVIEW_H
#define ERG_CLI_TRAIN_PREVIEW_H

#include "train/run/run_preview.h"

void erg_train_preview_print(const struct erg_run_preview *preview);

#endif
