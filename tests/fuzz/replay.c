/*
 * Runs a fuzz target on the files of a folder, or on single files, without libFuzzer: what once
 * broke a parser must not break it again. Every prefix that ends at a line is tried as well.
 */
#include "base/text.h"
#include "io/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* A copy without slack, so that reading past its end is seen by the address sanitizer. */
static void try_bytes(const char *bytes, size_t size)
{
    unsigned char *copy = erg_xmalloc(size ? size : 1);
    memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static int replay_file(const char *path)
{
    char *text;
    size_t length;
    struct erg_error err;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return -1;
    }
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n' && i + 1 < length)
            try_bytes(text, i + 1);
    try_bytes(text, length);
    free(text);
    return 0;
}

/* The number of files that were run, or -1. */
static int replay(const char *path)
{
    DIR *listing = opendir(path);
    if (!listing)
        return replay_file(path) == 0 ? 1 : -1;
    int count = 0;
    struct dirent *entry;
    struct erg_text file = {0};
    while (count >= 0 && (entry = readdir(listing)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        file.count = 0;
        erg_text_printf(&file, "%s/%s", path, entry->d_name);
        count = replay_file(file.data) == 0 ? count + 1 : -1;
    }
    erg_text_release(&file);
    closedir(listing);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0)
            return 1;
        total += count;
    }
    printf("%d files\n", total);
    return total > 0 ? 0 : 1;
}
