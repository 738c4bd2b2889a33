/* A line of squeue: any bytes are no managed job's, or have a token, a state and no negative GPUs.
 */
#include "cluster/live/job_list.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_live_line line;
    struct erg_arena arena = {0};
    char *text = erg_xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    if (erg_live_line_parse(&line, text, &arena) &&
        (!*line.token || !line.state || line.gpus < 0 || line.since_s < 0 ||
         !erg_live_line_says(&line)))
        abort();
    erg_arena_release(&arena);
    free(text);
    return 0;
}
