/* The text of ergon memory for people: a line per stage, its largest item, and whether the layout
 * fits. */
#ifndef ERG_REPORT_TEXT_MEMORY_PRINT_H
#define ERG_REPORT_TEXT_MEMORY_PRINT_H

#include "layout/document/memory_document.h"

#include <stdio.h>

void erg_memory_print(FILE *out, const struct erg_memory_answer *answer);

#endif
