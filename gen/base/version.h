/* version.h: the version that the generator prints and writes into plans. */
#ifndef PEN_VERSION_H
#define PEN_VERSION_H

#define PEN_VERSION_TEXT "0.1"

#endif
