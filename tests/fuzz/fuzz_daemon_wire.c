/* Packets of the daemon: any bytes are refused, or are a request that is written as the same bytes.
 */
#include "telemetry/daemon_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_answer(const uint8_t *data, size_t size)
{
    struct erg_wire_head head;
    struct erg_wire_reader body, again;
    struct erg_wire_hello hello;
    struct erg_wire_gpu gpu;
    struct erg_wire_change change;
    char text[ERG_WIRE_TEXT];
    if (!erg_wire_read_head(&head, &body, data, size))
        return;
    again = body;
    erg_wire_read_hello(&hello, &again);
    again = body;
    if (erg_wire_read_gpu(&gpu, &again) && strlen(gpu.uuid) >= sizeof gpu.uuid)
        abort();
    again = body;
    erg_wire_read_change(&change, &again);
    again = body;
    erg_wire_get_text(&again, text);
    if (again.left > size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct erg_wire_request request;
    struct erg_wire_writer writer;
    read_answer(data, size);
    if (erg_wire_read_request(&request, data, size) != ERG_WIRE_DONE ||
        request.type < ERG_WIRE_HELLO || request.type >= ERG_WIRE_TYPES)
        return 0;
    erg_wire_write_request(&writer, &request);
    /* The last number of a LEASE is not looked at. */
    size_t same = request.type == ERG_WIRE_LEASE ? size - 4 : size;
    if (writer.count != size || memcmp(writer.bytes, data, same) != 0)
        abort();
    return 0;
}
