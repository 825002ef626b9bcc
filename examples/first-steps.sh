#!/usr/bin/env bash
# The first steps with nothing but curl and openssl: sign in with a fresh key, register a machine, create a session,
# append two messages, read them back. The server is the first argument, http://127.0.0.1:8080 without one.
set -euo pipefail
SERVER=${1:-http://127.0.0.1:8080}
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
json=(-fsS -H 'Content-Type: application/json')

# An account is an Ed25519 key pair. The last 32 bytes of its DER form are the public key.
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
openssl genpkey -algorithm ed25519 -out "$dir/key.pem"
public_key=$(openssl pkey -in "$dir/key.pem" -pubout -outform DER | tail -c 32 | base64 | tr '+/' '-_' | tr -d '=')

# Sign in: sign a challenge together with the origin, so that nobody else's server can pass it on.
challenge=$(curl -fsS -X POST "$SERVER/v1/auth/challenge" | field challenge)
printf 'ensemble-auth-v1\n%s\n%s\n%s' "$SERVER" "$public_key" "$challenge" > "$dir/message"
signature=$(openssl pkeyutl -sign -rawin -inkey "$dir/key.pem" -in "$dir/message" | base64 | tr -d '\n')
token=$(curl "${json[@]}" "$SERVER/v1/auth" \
    -d "{\"publicKey\":\"$public_key\",\"challenge\":\"$challenge\",\"signature\":\"$signature\",\"origin\":\"$SERVER\"}" | field token)
auth=(-H "Authorization: Bearer $token")

curl "${json[@]}" "${auth[@]}" "$SERVER/v1/machines" -d '{"id":"my-laptop","metadata":"<ciphertext>","encryptionKey":"<sealed key>"}'; echo
session=$(curl "${json[@]}" "${auth[@]}" "$SERVER/v1/sessions" \
    -d '{"machineId":"my-laptop","metadata":"<ciphertext>","encryptionKey":"<sealed key>"}' | sed 's/.*"id":"\([0-9a-f-]*\)","ownerId".*/\1/')
curl "${json[@]}" "${auth[@]}" "$SERVER/v3/sessions/$session/messages" -d '{"content":"<first ciphertext>","localId":"1"}'; echo
curl "${json[@]}" "${auth[@]}" "$SERVER/v3/sessions/$session/messages" -d '{"content":"<second ciphertext>","localId":"2"}'; echo
curl -fsS "${auth[@]}" "$SERVER/v3/sessions/$session/messages?after=0"; echo
