// The story with the client of oapi-codegen. Usage: story SERVER
package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"

	"interface/api"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprint(what...))
	}
}

func main() {
	server, ctx, text := os.Args[1], context.Background(), base64.RawURLEncoding.EncodeToString
	public, private, err := ed25519.GenerateKey(nil)
	check(err == nil, err)
	token := ""
	signed := func(_ context.Context, request *http.Request) error {
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		return nil
	}
	client := must(api.NewClientWithResponses(server, api.WithRequestEditorFn(signed)))
	challenge := must(client.CreateChallengeWithResponse(ctx)).JSON200.Challenge
	proof := ed25519.Sign(private, []byte("ensemble-auth-v1\n"+server+"\n"+text(public)+"\n"+challenge))
	signIn := api.SignIn{PublicKey: text(public), Challenge: challenge, Signature: text(proof), Origin: server}
	token = must(client.SignInWithResponse(ctx, signIn)).JSON200.Token
	created := must(client.CreateSessionWithResponse(ctx, nil, api.CreateSession{Metadata: "AQID", EncryptionKey: "AQID"}))
	check(created.JSON201 != nil, string(created.Body))
	id := created.JSON201.Id
	list := must(client.ListSessionsWithResponse(ctx, nil))
	check(len(list.JSON200.Sessions) == 1 && list.JSON200.Sessions[0].Id == id, string(list.Body))
	message := api.AppendMessage{Content: "AQID", LocalId: "1"}
	sent := must(client.AppendMessageWithResponse(ctx, id, message))
	check(sent.JSON201 != nil && sent.JSON201.Seq == 1, string(sent.Body))
	page := must(client.ListMessagesWithResponse(ctx, id, nil))
	check(len(page.JSON200.Messages) == 1 && page.JSON200.Messages[0].Content == "AQID", string(page.Body))
	missing := must(client.GetSessionWithResponse(ctx, "01900000-0000-7000-8000-000000000000", nil))
	check(missing.StatusCode() == 404, string(missing.Body))
}
