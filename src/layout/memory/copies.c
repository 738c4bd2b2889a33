#include "layout/memory/copies.h"

#include <stdlib.h>

void erg_memory_copies_release(struct erg_memory_copies *copies)
{
    free(copies->items);
    free(copies->passes.items);
    *copies = (struct erg_memory_copies){0};
}
