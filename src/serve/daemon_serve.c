/* The daemon as a program runs it, with a second socket for clients of zeusd. */
#include "serve/daemon_serve.h"

#include "daemon/daemon.h"
#include "serve/zeusd.h"

int erg_daemon_serve(const struct erg_daemon_input *input, struct erg_error *err)
{
    struct erg_daemon_options daemon = {
        .config = input->config, .folder = input->folder, .socket = input->socket, .proc = "/proc"};
    struct erg_zeusd *zeusd = NULL;
    if (input->restore)
        return erg_daemon_restore(&daemon, err);
    if (input->zeusd) {
        if (erg_zeusd_new(&zeusd, input->zeusd, &daemon.guests, err) != 0)
            return -1;
        daemon.opened = erg_zeusd_listen;
        daemon.context = zeusd;
    }
    const int result = erg_daemon_run(&daemon, err);
    erg_zeusd_free(zeusd);
    return result;
}
