# train.sh: what tests of train and its data share. A test sources this after lib.sh; its binaries are in the current folder.

# train NAME OPTION...: trains, quietly, with the data file $data unless that is empty; the messages in err.
train() {
  train_name=$1
  shift
  "./$train_name" train --seed 7 ${data:+--data $data} --quiet "$@" 2>err
}
# refuses NAME STATUS MESSAGE TRAIN OPTION...
refuses() {
  refuses_name=$1 refuses_status=$2 refuses_message=$3
  shift 3
  train "$@"
  is "$refuses_name: status" $? "$refuses_status"
  matches "$refuses_name: message" "$(complaints err)" "penstock: $refuses_message"
}
