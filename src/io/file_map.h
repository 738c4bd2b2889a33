/* Files mapped into memory, read only. */
#ifndef ERG_IO_FILE_MAP_H
#define ERG_IO_FILE_MAP_H

#include "ergon/error.h"

#include <stddef.h>

/* Maps a whole file, for munmap(*bytes, *length) later. *bytes is NULL where there is nothing to
 * map: an empty file, a folder, a device. */
int erg_file_map(const char *path, void **bytes, size_t *length, struct erg_error *err);

#endif
