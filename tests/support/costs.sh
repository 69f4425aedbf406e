# costs.sh: files of measured costs that are made up, for a llama of any number of layers. A test sources this after lib.sh.

# block NAME MICROBATCH F I W B RECOMPUTE: a row.
block() {
  printf '{"block":"%s","microbatch":%s,"tensor":1,"forward":%s,"backward_input":%s,"backward_weight":%s,"backward":%s,"recompute":%s}' "$@"
}
# blocks MICROBATCH ZEROS: a row of each kind, of times that end with the zeros.
blocks() {
  block model.embed_tokens "$1" "1$2" 0 "2$2" "2$2" 0
  printf ,
  block model.layers.0.self_attn "$1" "10$2" "20$2" "8$2" "26$2" "5$2"
  printf ,
  block model.layers.0.mlp "$1" "16$2" "14$2" "15$2" "29$2" "11$2"
  printf ,
  block model.norm "$1" "3$2" "4$2" "1$2" "5$2" "2$2"
  printf ,
  block lm_head "$1" "30$2" "31$2" "32$2" "60$2" "7$2"
}
# costs MESSAGES COLLECTIVES: a file; with microbatches of 4 each block takes ten times as long as with 2.
costs() {
  printf '{"version":2,"device":"cpu","dtype":"f32","sequence":48,"blocks":[%s,%s],' "$(blocks 2 '')" "$(blocks 4 0)"
  printf '"optimizer":{"ms_per_element":0.001},"messages":[%s],"collectives":[%s]}\n' "$1" "$2"
}
# message BYTES MS, collective KIND BYTES MS: rows.
message() { printf '{"transport":"shm","bytes":%s,"ms":%s}' "$@"; }
collective() { printf '{"kind":"%s","ranks":2,"bytes":%s,"ms":%s}' "$@"; }
# links: a file with both. A message of 2 x 48 x 64 floats has 24576 bytes, which is in the middle of the two.
links() {
  costs "$(message 8192 1),$(message 40960 5)" \
    "$(collective reduce_scatter 1000 0.05),$(collective reduce_scatter 1000000 50),$(collective all_gather 1000 0.02),$(collective all_gather 1000000 20)"
}
