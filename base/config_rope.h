/* config_rope.h: the rotary positions that a config.json asks for. */
#ifndef PEN_CONFIG_ROPE_H
#define PEN_CONFIG_ROPE_H

#include "base/config_values.h"
#include "base/config_write.h"

/* Set what an object of rope_scaling or rope_parameters says: for all layers, or for each kind. */
void pen_config_set_rope(const struct pen_config_reading *r, const struct pen_config_key *row,
                         const json_t *value);
void pen_config_set_ropes(const struct pen_config_reading *r, const struct pen_config_key *row,
                          const json_t *value);

/* The object rope_scaling of the settings; null: positions are not scaled. */
json_t *pen_config_rope_object(const struct pen_config_source *source);

#endif
