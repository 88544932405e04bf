/* Where a job's secret comes from: a text, which may be in a file. */
#include "runtime/comm/store.h"

#include "runtime/base/log.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 4096 };

static sherd_status start_sodium(void) {
    return sodium_init() < 0 ? shd_fail(SHERD_INTERNAL, "libsodium does not start: no random numbers here?") : SHERD_OK;
}

sherd_status shd_store_secret_make(char text[SHD_STORE_SECRET_TEXT_BYTES]) {
    uint8_t bytes[(SHD_STORE_SECRET_TEXT_BYTES - 1) / 2];
    SHD_TRY(start_sodium());
    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(text, SHD_STORE_SECRET_TEXT_BYTES, bytes, sizeof bytes);
    sodium_memzero(bytes, sizeof bytes);
    return SHERD_OK;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static sherd_status take(const char *text, size_t bytes, shd_store_secret *secret) {
    while (bytes > 0 && is_space(text[bytes - 1])) bytes--;
    while (bytes > 0 && is_space(*text)) text++, bytes--;
    if (bytes < SHD_STORE_SECRET_LEAST_BYTES)
        return shd_fail(SHERD_CONFIG, "the secret has %zu bytes; %d are needed so that nobody guesses it", bytes,
                        SHD_STORE_SECRET_LEAST_BYTES);
    SHD_TRY(start_sodium());
    crypto_generichash(secret->bytes, sizeof secret->bytes, (const uint8_t *)text, bytes, NULL, 0);
    return SHERD_OK;
}

sherd_status shd_store_secret_from_text(const char *text, shd_store_secret *secret) {
    return take(text, strlen(text), secret);
}

/* Reads it and looks at who else may. */
static sherd_status read_file(int file, const char *path, char text[FILE_BYTES + 1], size_t *text_bytes) {
    struct stat about;
    if (fstat(file, &about) < 0) return shd_fail(SHERD_IO, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode)) return shd_fail(SHERD_CONFIG, "%s is no regular file", path);
    if (about.st_mode & S_IWOTH)
        return shd_fail(SHERD_CONFIG, "everybody may write %s: a secret from there is none (chmod 600)", path);
    if (about.st_mode & S_IROTH)
        shd_log(SHERD_LOG_WARN, "store: everybody on this machine may read the secret in %s (chmod 600)", path);
    size_t bytes = 0;
    while (bytes <= FILE_BYTES) {
        ssize_t got = read(file, text + bytes, FILE_BYTES + 1 - bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return shd_fail(SHERD_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) break;
        bytes += (size_t)got;
    }
    if (bytes > FILE_BYTES) return shd_fail(SHERD_CONFIG, "%s has more than %d bytes: no secret", path, FILE_BYTES);
    *text_bytes = bytes;
    return SHERD_OK;
}

sherd_status shd_store_secret_from_file(const char *path, shd_store_secret *secret) {
    /* NONBLOCK: a pipe is told, not waited for. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return shd_fail(SHERD_IO, "cannot open the secret's file %s: %s", path, strerror(errno));
    char text[FILE_BYTES + 1];
    size_t bytes = 0;
    sherd_status status = read_file(file, path, text, &bytes);
    close(file);
    if (status == SHERD_OK) {
        status = take(text, bytes, secret);
        if (status != SHERD_OK) shd_fail_within(status, "%s", path);
    }
    sodium_memzero(text, sizeof text);
    return status;
}
