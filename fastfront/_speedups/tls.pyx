# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""OpenSSL's calls, and a server's certificates."""
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from fastfront._speedups.buffers cimport Buf, buf_reserve


cdef extern from * nogil:
    """
    /* What is used of OpenSSL 3, found in the installed library when TLS is first asked for: building needs none of its headers,
       and servers without TLS do not load it. Declarations and values are those of its manual (man 3ssl). */
    #include <dlfcn.h>
    #include <stddef.h>
    #include <stdint.h>

    #define OPENSSL_LIBRARY "libssl.so.3"

    enum {
        TLS_FILETYPE_PEM = 1,
        TLS_ERROR_WANT_READ = 2,
        TLS_ERROR_ZERO_RETURN = 6,
        TLS_VERIFY_PEER = 1,
        TLS_VERIFY_FAIL_IF_NO_PEER_CERT = 2,
        TLS_CTRL_MODE = 33,
        TLS_CTRL_SET_SESS_CACHE_MODE = 44,
        TLS_CTRL_SET_MIN_PROTO_VERSION = 123,
        TLS_MODE_RELEASE_BUFFERS = 0x10,
        TLS_1_2 = 0x0303,
        TLS_ALPN_OK = 0,
        TLS_ALPN_NOACK = 3,
    };
    #define TLS_OP_CIPHER_SERVER_PREFERENCE ((uint64_t)1 << 22)
    #define TLS_OP_NO_RENEGOTIATION ((uint64_t)1 << 30)

    typedef int (*tls_password_cb)(char *, int, int, void *);
    typedef int (*tls_alpn_cb)(void *, const unsigned char **, unsigned char *, const unsigned char *, unsigned, void *);

    #define OPENSSL_FUNCTIONS(F) \\
        F(const void *, TLS_server_method, (void)) \\
        F(void *, SSL_CTX_new, (const void *)) \\
        F(void, SSL_CTX_free, (void *)) \\
        F(long, SSL_CTX_ctrl, (void *, int, long, void *)) \\
        F(uint64_t, SSL_CTX_set_options, (void *, uint64_t)) \\
        F(int, SSL_CTX_set_cipher_list, (void *, const char *)) \\
        F(int, SSL_CTX_use_certificate_chain_file, (void *, const char *)) \\
        F(int, SSL_CTX_use_PrivateKey_file, (void *, const char *, int)) \\
        F(int, SSL_CTX_load_verify_locations, (void *, const char *, const char *)) \\
        F(void *, SSL_load_client_CA_file, (const char *)) \\
        F(void, SSL_CTX_set_client_CA_list, (void *, void *)) \\
        F(void, SSL_CTX_set_verify, (void *, int, void *)) \\
        F(int, SSL_CTX_set_session_id_context, (void *, const unsigned char *, unsigned)) \\
        F(void, SSL_CTX_set_alpn_select_cb, (void *, tls_alpn_cb, void *)) \\
        F(void, SSL_CTX_set_default_passwd_cb, (void *, tls_password_cb)) \\
        F(void *, SSL_new, (void *)) \\
        F(void, SSL_free, (void *)) \\
        F(void, SSL_set_accept_state, (void *)) \\
        F(void, SSL_set_bio, (void *, void *, void *)) \\
        F(void *, SSL_get_rbio, (const void *)) \\
        F(void *, SSL_get_wbio, (const void *)) \\
        F(int, SSL_read, (void *, void *, int)) \\
        F(int, SSL_write, (void *, const void *, int)) \\
        F(int, SSL_shutdown, (void *)) \\
        F(int, SSL_get_error, (const void *, int)) \\
        F(const void *, BIO_s_mem, (void)) \\
        F(void *, BIO_new, (const void *)) \\
        F(int, BIO_free, (void *)) \\
        F(int, BIO_read, (void *, void *, int)) \\
        F(int, BIO_write, (void *, const void *, int)) \\
        F(void, ERR_clear_error, (void)) \\
        F(unsigned long, ERR_get_error, (void)) \\
        F(const char *, ERR_reason_error_string, (unsigned long))

    #define OPENSSL_POINTER(RESULT, NAME, ARGUMENTS) RESULT (*NAME) ARGUMENTS;
    typedef struct {
        OPENSSL_FUNCTIONS(OPENSSL_POINTER)
    } openssl_functions;

    /* NULL, or what is missing. The library stays loaded. */
    static const char *openssl_load(openssl_functions *to) {
        void *library = dlopen(OPENSSL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            return OPENSSL_LIBRARY;
    #define OPENSSL_FIND(RESULT, NAME, ARGUMENTS) \\
        *(void **)&to->NAME = dlsym(library, #NAME); \\
        if (to->NAME == NULL) \\
            return #NAME;
        OPENSSL_FUNCTIONS(OPENSSL_FIND)
        return NULL;
    }
    """
    ctypedef int (*tls_password_cb)(char *, int, int, void *) noexcept
    ctypedef int (*tls_alpn_cb)(void *, const unsigned char **, unsigned char *, const unsigned char *, unsigned, void *) noexcept
    ctypedef struct openssl_functions:
        const void *(*TLS_server_method)() noexcept nogil
        void *(*SSL_CTX_new)(const void *) noexcept nogil
        void (*SSL_CTX_free)(void *) noexcept nogil
        long (*SSL_CTX_ctrl)(void *, int, long, void *) noexcept nogil
        uint64_t (*SSL_CTX_set_options)(void *, uint64_t) noexcept nogil
        int (*SSL_CTX_set_cipher_list)(void *, const char *) noexcept nogil
        int (*SSL_CTX_use_certificate_chain_file)(void *, const char *) noexcept nogil
        int (*SSL_CTX_use_PrivateKey_file)(void *, const char *, int) noexcept nogil
        int (*SSL_CTX_load_verify_locations)(void *, const char *, const char *) noexcept nogil
        void *(*SSL_load_client_CA_file)(const char *) noexcept nogil
        void (*SSL_CTX_set_client_CA_list)(void *, void *) noexcept nogil
        void (*SSL_CTX_set_verify)(void *, int, void *) noexcept nogil
        int (*SSL_CTX_set_session_id_context)(void *, const unsigned char *, unsigned) noexcept nogil
        void (*SSL_CTX_set_alpn_select_cb)(void *, tls_alpn_cb, void *) noexcept nogil
        void (*SSL_CTX_set_default_passwd_cb)(void *, tls_password_cb) noexcept nogil
        void *(*SSL_new)(void *) noexcept nogil
        void (*SSL_free)(void *) noexcept nogil
        void (*SSL_set_accept_state)(void *) noexcept nogil
        void (*SSL_set_bio)(void *, void *, void *) noexcept nogil
        void *(*SSL_get_rbio)(const void *) noexcept nogil
        void *(*SSL_get_wbio)(const void *) noexcept nogil
        int (*SSL_read)(void *, void *, int) noexcept nogil
        int (*SSL_write)(void *, const void *, int) noexcept nogil
        int (*SSL_shutdown)(void *) noexcept nogil
        int (*SSL_get_error)(const void *, int) noexcept nogil
        const void *(*BIO_s_mem)() noexcept nogil
        void *(*BIO_new)(const void *) noexcept nogil
        int (*BIO_free)(void *) noexcept nogil
        int (*BIO_read)(void *, void *, int) noexcept nogil
        int (*BIO_write)(void *, const void *, int) noexcept nogil
        void (*ERR_clear_error)() noexcept nogil
        unsigned long (*ERR_get_error)() noexcept nogil
        const char *(*ERR_reason_error_string)(unsigned long) noexcept nogil
    const char *openssl_load(openssl_functions *)
    int TLS_FILETYPE_PEM, TLS_ERROR_WANT_READ, TLS_ERROR_ZERO_RETURN, TLS_VERIFY_PEER, TLS_VERIFY_FAIL_IF_NO_PEER_CERT
    int TLS_CTRL_MODE, TLS_CTRL_SET_SESS_CACHE_MODE, TLS_CTRL_SET_MIN_PROTO_VERSION, TLS_MODE_RELEASE_BUFFERS, TLS_1_2
    int TLS_ALPN_OK, TLS_ALPN_NOACK
    uint64_t TLS_OP_CIPHER_SERVER_PREFERENCE, TLS_OP_NO_RENEGOTIATION


cdef enum:
    READ_BYTES = 4096


cdef openssl_functions ssl      # written by `load` before there is any context; read by all threads
cdef const unsigned char *HTTP = b"http/1.1"


class TlsError(Exception):
    """`args`: what is at fault (library, certfile, keyfile, pair, ca_certs or ciphers), and why."""


cdef int load() except -1:
    """Finds the library's functions. More than once does no harm: they stay where they are."""
    cdef const char *missing = openssl_load(&ssl)
    if missing != NULL:
        raise TlsError("library", (<bytes>missing).decode())
    return 0


cdef object failure(str what):
    """The oldest error of this thread's last call."""
    cdef unsigned long code = ssl.ERR_get_error()
    cdef const char *reason = ssl.ERR_reason_error_string(code) if code else NULL
    ssl.ERR_clear_error()
    return TlsError(what, (<bytes>reason).decode() if reason != NULL else "not readable as such")


cdef int no_password(char *to, int size, int writing, void *data) noexcept nogil:
    """An encrypted key is not asked for at the terminal."""
    return -1


cdef int choose_protocol(
    void *tls, const unsigned char **chosen, unsigned char *chosen_len, const unsigned char *offered, unsigned n, void *data
) noexcept nogil:
    """HTTP/1.1, or nothing if the client does not offer it."""
    cdef unsigned at = 0
    while at < n and at + 1 + offered[at] <= n:
        if offered[at] == 8 and memcmp(&offered[at + 1], HTTP, 8) == 0:
            chosen[0] = &offered[at + 1]
            chosen_len[0] = 8
            return TLS_ALPN_OK
        at += 1 + offered[at]
    return TLS_ALPN_NOACK


cdef class TlsContext:
    """A server's certificate with its key (PEM files), and what it asks of clients: TLS 1.2 or 1.3.

    `verify`: 0 asks for no certificate of a client, 1 checks one that is given, 2 wants one, signed by one of `ca_certs`.
    `ciphers`: OpenSSL's names of what may be used up to TLS 1.2. Raises TlsError.
    """

    def __init__(self, str certfile not None, str keyfile not None, str ca_certs=None, int verify=0, str ciphers=None):
        if self.handle != NULL:
            raise RuntimeError("a TlsContext is made once")
        load()
        ssl.ERR_clear_error()
        self.handle = ssl.SSL_CTX_new(ssl.TLS_server_method())
        if self.handle == NULL:
            raise MemoryError
        ssl.SSL_CTX_ctrl(self.handle, TLS_CTRL_SET_MIN_PROTO_VERSION, TLS_1_2, NULL)
        ssl.SSL_CTX_ctrl(self.handle, TLS_CTRL_MODE, TLS_MODE_RELEASE_BUFFERS, NULL)
        ssl.SSL_CTX_ctrl(self.handle, TLS_CTRL_SET_SESS_CACHE_MODE, 0, NULL)     # clients keep their sessions (tickets)
        ssl.SSL_CTX_set_options(self.handle, TLS_OP_NO_RENEGOTIATION | TLS_OP_CIPHER_SERVER_PREFERENCE)
        ssl.SSL_CTX_set_session_id_context(self.handle, HTTP, 8)
        ssl.SSL_CTX_set_alpn_select_cb(self.handle, choose_protocol, NULL)
        ssl.SSL_CTX_set_default_passwd_cb(self.handle, no_password)
        if ciphers is not None and not ssl.SSL_CTX_set_cipher_list(self.handle, ciphers.encode()):
            raise failure("ciphers")
        if ssl.SSL_CTX_use_certificate_chain_file(self.handle, certfile.encode("utf-8", "surrogateescape")) != 1:
            raise failure("certfile")
        if ssl.SSL_CTX_use_PrivateKey_file(self.handle, keyfile.encode("utf-8", "surrogateescape"), TLS_FILETYPE_PEM) != 1:
            raise failure("keyfile")            # also if it is that of another certificate
        if ca_certs is not None:
            self.trust(ca_certs.encode("utf-8", "surrogateescape"))
        if verify:
            ssl.SSL_CTX_set_verify(
                self.handle, TLS_VERIFY_PEER | (TLS_VERIFY_FAIL_IF_NO_PEER_CERT if verify == 2 else 0), NULL)

    cdef int trust(self, bytes path) except -1:
        cdef void *names = NULL
        if ssl.SSL_CTX_load_verify_locations(self.handle, path, NULL) == 1:
            names = ssl.SSL_load_client_CA_file(path)
        if names == NULL:
            raise failure("ca_certs")
        ssl.SSL_CTX_set_client_CA_list(self.handle, names)      # which it owns from here on
        return 0

    def __dealloc__(self):
        if self.handle != NULL:
            ssl.SSL_CTX_free(self.handle)       # connections hold on to it


cdef void *tls_new(void *context) noexcept nogil:
    cdef void *tls = ssl.SSL_new(context)
    cdef void *incoming = ssl.BIO_new(ssl.BIO_s_mem())
    cdef void *outgoing = ssl.BIO_new(ssl.BIO_s_mem())
    if tls == NULL or incoming == NULL or outgoing == NULL:
        ssl.SSL_free(tls)
        ssl.BIO_free(incoming)
        ssl.BIO_free(outgoing)
        return NULL
    ssl.SSL_set_bio(tls, incoming, outgoing)    # it owns them
    ssl.SSL_set_accept_state(tls)
    return tls


cdef void tls_free(void *tls) noexcept nogil:
    if tls != NULL:
        ssl.SSL_free(tls)


cdef int tls_open(void *tls, const char *sealed, size_t n, Buf *plain) noexcept nogil:
    cdef int r
    ssl.ERR_clear_error()
    if ssl.BIO_write(ssl.SSL_get_rbio(tls), sealed, <int>n) != <int>n:
        return -1
    while True:
        if plain.cap == plain.len and buf_reserve(plain, max(n, <size_t>READ_BYTES)) < 0:
            return -1
        r = ssl.SSL_read(tls, plain.data + plain.len, <int>(plain.cap - plain.len))
        if r <= 0:
            break
        plain.len += r
    r = ssl.SSL_get_error(tls, r)
    return 0 if r == TLS_ERROR_WANT_READ else 1 if r == TLS_ERROR_ZERO_RETURN else -1


cdef int tls_seal(void *tls, const char *plain, size_t n) noexcept nogil:
    cdef size_t part
    ssl.ERR_clear_error()
    while n:
        part = min(n, <size_t>1 << 30)
        if ssl.SSL_write(tls, plain, <int>part) != <int>part:
            return -1
        plain += part
        n -= part
    return 0


cdef void tls_goodbye(void *tls) noexcept nogil:
    ssl.ERR_clear_error()
    ssl.SSL_shutdown(tls)


cdef size_t tls_take(void *tls, char *to, size_t n) noexcept nogil:
    cdef int r = ssl.BIO_read(ssl.SSL_get_wbio(tls), to, <int>n)
    return r if r > 0 else 0
